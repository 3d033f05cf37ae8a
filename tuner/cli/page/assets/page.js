// The live page: one stream of events, the state it leads to, and the parts that show it.

import { prepareAnswers, readAnswers } from "./answers.js";
import { resizeDevices, restyleDevices, showDevices } from "./devices.js";
import { byId, debounced, setText } from "./dom.js";
import { showJobs } from "./jobs.js";
import { pin, resizeSearch, restyleSearch, showSearch } from "./search.js";
import { State } from "./state.js";
import { prepareForm, showDeviceChoice } from "./submit.js";

const DRAW_MS = 200;
const DRAW_MANY_MS = 1000; // where a plot has thousands of points
const MANY = 2000;
const UNSEEN_MS = 30_000; // after which a page in the background has no power sampled any more
const KINDS = ["begin", "present", "status", "device", "job", "trial", "told", "compiled", "answer", "power"];

const state = new State();
const changed = new Set();
let source = null;
let place = "";
let unseen = null;

function show() {
  const names = new Set(changed);
  changed.clear();
  if (names.has("status")) showStatus();
  if (names.has("devices")) {
    showDevices(state);
    showDeviceChoice(state);
  }
  if (names.has("jobs") || names.has("search")) showJobs(state);
  if (names.has("search")) showSearch(state);
  if (names.has("answers")) readAnswers();
}

const showSoon = debounced(show, DRAW_MS);
const showLater = debounced(show, DRAW_MANY_MS);

function note(names) {
  for (const name of names) changed.add(name);
  const most = Math.max(0, ...[...state.searches.values()].map((search) => search.trials.size));
  (most > MANY ? showLater : showSoon)();
}

function showStatus() {
  const { version, queue, notices, troubles, windows } = state.status;
  const waits = queue.queued ? `, ${queue.queued} waiting` : "";
  const paused = queue.paused ? `, ${queue.paused} paused` : "";
  const closed = windows.open ? "" : `; tuning windows: ${windows.summary}`;
  setText(byId("daemon"), `daemon ${version}: ${queue.running} running${waits}${paused}${closed}`);
  const said = [...troubles, ...notices];
  byId("troubles").hidden = said.length === 0;
  setText(byId("troubles"), said.join(" · "));
}

function showConnection(name, words) {
  const badge = byId("connection");
  badge.className = `badge ${name}`;
  setText(badge, words);
}

/** Follow the daemon from where the page is; power is sampled only while somebody looks. */
function follow(power) {
  source?.close();
  source = new EventSource(`/v1/events?power=${power}&after=${encodeURIComponent(place)}`);
  for (const kind of KINDS) source.addEventListener(kind, take);
  source.addEventListener("away", (event) => {
    showConnection("away", `the daemon does not answer, tried again: ${JSON.parse(event.data).message}`);
  });
  source.onerror = () => {
    const ended = source.readyState === EventSource.CLOSED;
    showConnection("away", ended ? "this page is not valid any more: open the link of a new `tuner open`" : "`tuner open` does not answer, tried again");
  };
}

function take(event) {
  place = event.lastEventId || place;
  showConnection("live", "live");
  note(state.take(JSON.parse(event.data)));
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(unseen);
  if (document.hidden) unseen = setTimeout(() => follow(false), UNSEEN_MS);
  else follow(true);
});
document.addEventListener("changed", (event) => note(event.detail));
document.addEventListener("refused", (event) => setText(byId("e-form"), event.detail));
byId("shown-job").addEventListener("change", (event) => {
  pin(Number(event.target.value));
  note(["search"]);
});
byId("all-trials").addEventListener("change", () => note(["search"]));
addEventListener("resize", debounced(() => {
  resizeDevices();
  resizeSearch();
}, DRAW_MS));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  restyleDevices();
  restyleSearch();
});

prepareForm();
prepareAnswers();
follow(true);
