// The table of jobs: those that have not ended first, with what can be done with each.

import { confirmed } from "./confirm.js";
import { byId, cell, element, setText } from "./dom.js";
import { post } from "./requests.js";
import { pin } from "./search.js";
import { moment } from "./words.js";

const MOST_ROWS = 60;
const ORDER = ["running", "queued", "paused"];
const VERBS = {
  cancel: ["Cancel", "It ends; the trials that it has stored stay."],
  pause: ["Pause", "It stops until somebody resumes it, and then goes on where it was."],
  resume: ["Resume", "It is queued again, and goes on where it was."],
};
const MAY = { running: ["pause", "cancel"], queued: ["pause", "cancel"], paused: ["resume", "cancel"] };

const rows = new Map(); // number -> { text, row }

export function showJobs(state) {
  const rank = (job) => (ORDER.includes(job.state) ? ORDER.indexOf(job.state) : ORDER.length);
  const jobs = [...state.jobs.values()]
    .sort((one, other) => rank(one) - rank(other) || other.id - one.id)
    .slice(0, MOST_ROWS);
  const focused = document.activeElement?.dataset?.action;
  byId("jobs").replaceChildren(...jobs.map((job) => rowOf(job, state.search(job.id))));
  if (focused) byId("jobs").querySelector(`[data-action="${focused}"]`)?.focus();
  for (const number of rows.keys()) if (!state.jobs.has(number)) rows.delete(number);
  byId("no-jobs").hidden = jobs.length > 0;
  byId("jobs").closest(".scroll").hidden = jobs.length === 0;
}

/** The row of a job, made anew only where it differs. */
function rowOf(job, search) {
  const trials = Math.max(job.trials, search.trials.size);
  const run = job.run ?? search.run;
  const text = JSON.stringify([job, trials, run]);
  const known = rows.get(job.id);
  if (known?.text === text) return known.row;
  const row = newRow({ ...job, run }, trials);
  rows.set(job.id, { text, row });
  return row;
}

function newRow(job, trials) {
  const row = element("tr");
  const state = [element("span", job.state, `state ${job.state}`)];
  if (job.reason) state.push(element("div", job.reason, "muted"));
  const limit = job.options.max_slowdown === undefined ? "" : `, at most ${100 * job.options.max_slowdown} % slower`;
  const singles = job.options.timing === "single" ? " of single launches" : "";
  row.append(
    cell("job", String(job.id), "number"),
    cell("state", element("div", null)),
    cell("workloads", element("div", job.workloads.join("\n"))),
    cell("search", element("div", `${job.objective}${singles}${limit}, ${job.policy}, clocks ${job.clocks}`)),
    cell("device", job.device || "any"),
    cell("trials", trials.toLocaleString(), "number"),
    cell("submitted", moment(job.created_at), "number"),
    cell("", element("div", null, "buttons")),
  );
  row.querySelector("td:nth-child(2) div").append(...state);
  row.querySelector(".buttons").append(...actions(job));
  return row;
}

function actions(job) {
  const buttons = (MAY[job.state] ?? []).map((verb) => {
    const [name] = VERBS[verb];
    const button = element("button", name, "", { type: "button", "data-action": `${verb}-${job.id}`, "aria-label": `${name} job ${job.id}` });
    button.addEventListener("click", () => change(job, verb));
    return button;
  });
  if (job.run !== null) {
    const show = element("button", "Show", "", { type: "button", "data-action": `show-${job.id}`, "aria-label": `Show trials of job ${job.id}` });
    show.addEventListener("click", () => {
      pin(job.id);
      document.dispatchEvent(new CustomEvent("changed", { detail: ["search"] }));
      byId("search-title").scrollIntoView();
    });
    buttons.push(show);
  }
  return buttons;
}

async function change(job, verb) {
  const [name, consequence] = VERBS[verb];
  const yes = await confirmed(`${name} job ${job.id} (${job.workloads.join(" + ")})?`, consequence, name);
  if (!yes) return;
  const told = byId("submitted");
  try {
    const changed = await post(`/v1/jobs/${job.id}/${verb}`);
    setText(told, `job ${changed.id} is ${changed.state}`);
  } catch (error) {
    document.dispatchEvent(new CustomEvent("refused", { detail: error.message }));
  }
}
