// The form that submits a search; what the daemon refuses stands under the field that it is about.

import { byId, element, setText } from "./dom.js";
import { post } from "./requests.js";

const FIELDS = [
  "workloads", "objective", "timing", "device", "policy", "clocks", "budget", "max_slowdown", "priority",
];
const NUMBERS = { budget: 1, max_slowdown: 0.01, priority: 1 }; // factor to what the daemon takes
const ABOUT = [ // words by which an error that names no field is placed
  [/device/i, "device"],
  [/polic/i, "policy"],
  [/clock/i, "clocks"],
  [/workload|kernel|named more than once/i, "workloads"],
];

export function prepareForm() {
  const form = byId("submit");
  for (const name of FIELDS) {
    byId(`f-${name}`).after(element("p", null, "error", { id: `e-${name}` }));
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
}

export function showDeviceChoice(state) {
  const choice = byId("f-device");
  const specs = [...state.devices.keys()];
  if (choice.dataset.specs === String(specs)) return;
  choice.dataset.specs = String(specs);
  choice.replaceChildren(...specs.map((spec) => element("option", spec, "", { value: spec })));
}

async function submit() {
  clearErrors();
  const order = read();
  if (order === null) return focusFirstError();
  const button = byId("submit").querySelector("button");
  button.disabled = true;
  try {
    const job = await post("/v1/jobs", order);
    setText(byId("submitted"), `job ${job.id} is ${job.state}`);
  } catch (error) {
    place(error.message);
    focusFirstError();
  } finally {
    button.disabled = false;
  }
}

/** The order in the form; null where a number is none. */
function read() {
  const value = (name) => byId(`f-${name}`).value.trim();
  const order = { workloads: value("workloads").split(/\s+/).filter(Boolean), options: {} };
  for (const name of ["objective", "device", "policy", "clocks"]) if (value(name)) order[name] = value(name);
  if (value("timing")) order.options.timing = value("timing");
  for (const [name, factor] of Object.entries(NUMBERS)) {
    if (!value(name)) continue;
    const number = Number(value(name).replace(",", "."));
    if (!Number.isFinite(number)) {
      fault(name, "must be a number");
      return null;
    }
    if (name === "priority") order.priority = number;
    else order.options[name] = factor === 1 ? number : Number((factor * number).toPrecision(12));
  }
  return order;
}

/** Put each part of an error under its field, or below the form. */
function place(message) {
  const rest = [];
  for (const part of message.split("; ")) {
    const [path, ...words] = part.split(": ");
    const names = path.split(".");
    const name = FIELDS.find((field) => names.includes(field));
    if (name && words.length) fault(name, words.join(": "));
    else rest.push(part);
  }
  if (!rest.length) return;
  const said = rest.join("; ");
  const about = ABOUT.find(([pattern]) => pattern.test(said));
  if (about) fault(about[1], said);
  else setText(byId("e-form"), said);
}

function fault(name, words) {
  const said = byId(`e-${name}`);
  setText(said, said.textContent ? `${said.textContent}; ${words}` : words);
  byId(`f-${name}`).setAttribute("aria-invalid", "true");
}

function clearErrors() {
  setText(byId("e-form"), "");
  setText(byId("submitted"), "");
  for (const name of FIELDS) {
    setText(byId(`e-${name}`), "");
    byId(`f-${name}`).removeAttribute("aria-invalid");
  }
}

function focusFirstError() {
  byId("submit").querySelector("[aria-invalid=true]")?.focus();
}
