// The search of one job: its trials as they end, the plot of time against energy, and its answer.

import { byId, cell, element, setText } from "./dom.js";
import { ParetoPlot, clockWords } from "./pareto_plot.js";
import { get } from "./requests.js";
import { si } from "./units.js";
import { ENERGY, POWER, TIME, against, configurations, count, numberCell, textOf } from "./words.js";

const MOST_ROWS = 100;
const PAGE = 500;

let plot = null;
let pinned = null; // the job that the user has chosen

/** The job whose trials are shown: the user's choice, else one that runs, else the newest with a run. */
function shownJob(state) {
  if (pinned !== null && state.jobs.has(pinned)) return state.jobs.get(pinned);
  const jobs = [...state.jobs.values()].sort((one, other) => other.id - one.id);
  return jobs.find((job) => job.state === "running") ?? jobs.find((job) => job.run !== null) ?? jobs[0] ?? null;
}

export function pin(number) {
  pinned = number;
}

export function showSearch(state) {
  plot ??= new ParetoPlot(byId("pareto"));
  const job = shownJob(state);
  showChoice(state, job);
  if (job === null) {
    setText(byId("search-state"), "no job has run yet");
    return;
  }
  const search = state.search(job.id);
  if (job.state !== "running" && search.trials.size === 0 && job.run !== null) readStored(state, job);
  const trials = [...search.trials.values()];
  setText(byId("search-state"), stateWords(job, search, trials));
  showProgress(job, search, trials);
  showPlot(trials);
  showTrials(trials);
  setText(byId("search-answer"), answerWords(search.answer));
  showSentences(search.sentences);
}

export function resizeSearch() {
  plot?.resize();
}

export function restyleSearch() {
  plot?.restyle();
}

/** Read the trials of a job that does not run: the stream has only those of jobs that do. */
async function readStored(state, job) {
  const search = state.search(job.id);
  if (search.reading) return;
  search.reading = true;
  let after = 0;
  while (after !== null) {
    const page = await get(`/v1/runs/${job.run}/trials?limit=${PAGE}&after=${after}`);
    for (const trial of page.trials) search.take(ofStored(trial, page));
    after = page.next;
  }
  search.answer = await get(`/v1/runs/${job.run}`);
  document.dispatchEvent(new CustomEvent("changed", { detail: ["search"] }));
}

/** A stored trial in the form of the stream's. */
function ofStored(trial, { run, modelled }) {
  const failed = Object.values(trial.workloads).find((one) => one.status !== "ok");
  return {
    ...trial,
    run,
    trial: trial.number,
    repeat: trial.confirmed ? trial.bursts : 0,
    confirming: trial.confirmed,
    detail: failed?.detail ?? "",
    clock_set_mhz: trial.clock_mhz,
    clock_mhz: trial.clock_seen_mhz,
    watts: trial.power_w,
    joules: null,
    expected: null,
    modelled,
  };
}

function showChoice(state, job) {
  const choice = byId("shown-job");
  const wanted = [...state.jobs.values()].filter((one) => one.run !== null || one.state === "running" || one === job);
  const numbers = wanted.map((one) => one.id).sort((one, other) => other - one);
  if (choice.dataset.numbers !== String(numbers)) {
    choice.dataset.numbers = String(numbers);
    choice.replaceChildren(...numbers.map((number) => element("option", `job ${number}`, "", { value: number })));
  }
  choice.value = job === null ? "" : String(job.id);
}

function stateWords(job, search, trials) {
  const failed = trials.filter((trial) => trial.status !== "ok").length;
  const parts = [job.workloads.join(" + "), job.state + (job.reason ? ` (${job.reason})` : "")];
  if (trials.length) parts.push(`${count(trials.length, "trial")}${failed ? `, ${failed} failed` : ""}`);
  else if (search.compiled) parts.push(`compiled ${search.compiled.done} of ${search.compiled.total}`);
  if (search.joules) parts.push(`${si(search.joules, "J", 3)} spent`);
  return parts.join(" · ");
}

function showProgress(job, search, trials) {
  const bar = byId("progress");
  bar.hidden = job.state !== "running" || !search.expected;
  if (bar.hidden) return;
  bar.max = search.expected;
  bar.value = Math.min(trials.length, search.expected);
}

function showPlot(trials) {
  const { front, left } = plot.draw(trials, byId("all-trials").checked);
  const least = front.at(-1);
  const none = trials.length ? "Time over the trials; their energy is not measured. Large dots are contenders, measured again." : "No trial yet.";
  setText(byId("pareto-text"), least === undefined ? none : plotWords(front, left));
}

function plotWords([fastest, ...others], left) {
  const least = others.at(-1) ?? fastest;
  return [
    `Time against energy${least.modelled ? " (modelled)" : ""}. The line joins the trials that no other beats in both:`,
    `the fastest takes ${textOf(TIME, fastest)},`,
    `the one of least energy ${textOf(ENERGY, least)}.`,
    "Large dots with intervals are contenders, measured again.",
    left ? `Slow or costly trials outside of the plot: ${left}.` : "",
  ].join(" ");
}

function showTrials(trials) {
  const newest = trials.slice(-MOST_ROWS).reverse();
  // Under a slowdown limit the fastest is looked for first: costs of that search are seconds.
  const compared = trials.filter((trial) => trial.unit === trials.at(-1).unit);
  const least = Math.min(...compared.map((trial) => trial.cost ?? Infinity));
  byId("trials").replaceChildren(...newest.map((trial) => row(trial, compared.includes(trial) && trial.cost === least)));
}

function row(trial, best) {
  const made = element("tr", null, trial.status !== "ok" ? "failed" : best ? "best" : "");
  const name = `${trial.trial}${trial.confirming ? ` (${trial.repeat} ×)` : ""}${best ? " ★" : ""}`;
  made.append(cell("trial", name, "number"));
  if (trial.status !== "ok") {
    const why = cell("failed", `${trial.status}${trial.detail ? `: ${trial.detail}` : ""}`);
    why.colSpan = 4;
    made.append(why);
  } else {
    made.append(
      ...[TIME, ENERGY, POWER].map((column) => numberCell(column, trial)),
      cell("clock", clockWords(trial), "number"),
    );
  }
  made.append(cell("configuration", configurations(trial.configurations), "words"));
  return made;
}

function answerWords(summary) {
  const best = summary?.best;
  if (!best) return "";
  const amounts = [textOf(TIME, best)];
  if (best.energy_j !== null) amounts.push(textOf(ENERGY, best));
  const compared = summary.against_default ? `; against the default it ${against(summary.against_default).replace(", ", " and ")}` : "";
  return `Answer${summary.modelled ? " (modelled)" : ""}: ${amounts.join(", ")}${compared}\n${configurations(best.configurations)}`;
}

function showSentences(sentences) {
  const target = byId("sentences");
  if (target.dataset.shown === sentences.join("\n")) return;
  target.dataset.shown = sentences.join("\n");
  target.replaceChildren(...sentences.map((sentence) => element("li", sentence)));
}
