// The answers that are served: what they save, and why they are stale.

import { byId, cell, element, setText } from "./dom.js";
import { get } from "./requests.js";
import { ENERGY, SAVING, TIME, against, configurations, moment, numberCell } from "./words.js";

const OFTEN_MS = 60_000; // staleness changes without an event

let answers = [];

export function prepareAnswers() {
  byId("answers-filter").addEventListener("change", show);
  setInterval(readAnswers, OFTEN_MS);
}

export async function readAnswers() {
  try {
    answers = (await get("/v1/answers")).answers;
  } catch {
    return; // away: the state of the connection says so
  }
  show();
}

function show() {
  const wanted = byId("answers-filter").value;
  const shown = answers.filter((answer) => !wanted || String(answer.stale.length > 0) === wanted);
  const stale = answers.filter((answer) => answer.stale.length > 0).length;
  setText(byId("answers-state"), `${answers.length} served, ${stale} stale`);
  byId("answers").replaceChildren(...shown.map(row));
  byId("no-answers").hidden = answers.length > 0;
  byId("answers").closest(".scroll").hidden = answers.length === 0;
}

function row(answer) {
  const made = element("tr");
  const names = element("details");
  const values = Object.fromEntries(Object.entries(answer.workloads).map(([name, one]) => [name, one.configuration]));
  const clock = answer.clock_mhz === null ? "clock as found" : `clock set to ${answer.clock_mhz} MHz`;
  names.append(element("summary", Object.keys(answer.workloads).join(" + ")));
  names.append(element("div", `${configurations(values)}\n${clock}; run ${answer.run} of ${moment(answer.at)}`, "muted words"));
  made.append(
    cell("workloads", names, "words"),
    cell("objective", answer.objective),
    cell("device", deviceOf(answer)),
    numberCell(TIME, answer.best),
    numberCell(ENERGY, answer.best),
    cell("against default", element("div", against(answer.against_default))),
    numberCell(SAVING, answer.saving),
    cell("state", element("div", null, "staleness")),
  );
  made.querySelector(".staleness").append(...staleness(answer));
  return made;
}

function deviceOf(answer) {
  const made = element("div", `${answer.device} `);
  if (answer.modelled) made.append(element("span", "modelled", "tag model"));
  return made;
}

function staleness(answer) {
  if (answer.stale.length) {
    return [element("span", "stale", "tag stale"), ...answer.stale.map((reason) => element("div", reason, "muted"))];
  }
  const sampled = answer.sampled_at ? `measured again ${moment(answer.sampled_at)}: ${answer.sample ?? "not counted"}` : "";
  return [element("span", "fresh", "tag"), element("div", sampled, "muted")];
}
