// A card for each device: power, clock, the job that runs, and who else is there.

import { byId, element, setText } from "./dom.js";
import { PowerPlot } from "./power_plot.js";
import { si } from "./units.js";

const cards = new Map(); // device -> its card

export function showDevices(state) {
  for (const [spec, card] of cards) {
    if (!state.devices.has(spec)) {
      card.root.remove();
      cards.delete(spec);
    }
  }
  for (const [spec, device] of state.devices) {
    if (!cards.has(spec)) cards.set(spec, newCard(device));
    showCard(cards.get(spec), device, state.power.get(spec) ?? []);
  }
}

export function resizeDevices() {
  for (const card of cards.values()) card.plot.resize();
}

export function restyleDevices() {
  for (const card of cards.values()) card.plot.restyle();
}

function newCard(device) {
  const root = element("article", null, "card");
  const title = element("h3", device.name.replace(" (modelled)", ""));
  const driver = device.driver ? `, driver ${device.driver}` : "";
  const parts = {
    figure: element("p", "–", "figure"),
    details: element("p", null, "muted"),
    job: element("p"),
    spent: element("p", null, "muted"),
  };
  const plot = element("div", null, "plot", { role: "img", "aria-label": `power of ${device.spec} over time` });
  if (device.modelled) title.append(" ", element("span", "modelled", "tag model"));
  root.append(title, element("p", `${device.spec}${driver}`, "muted"));
  root.append(parts.figure, parts.details, plot, parts.job, parts.spent);
  byId("devices").append(root);
  return { root, parts, plot: new PowerPlot(plot) };
}

function showCard({ parts, plot }, device, samples) {
  const now = samples.at(-1);
  setText(parts.figure, now?.watts === null || !now ? "– W" : `${now.watts.toFixed(1)} W`);
  setText(parts.details, detailsOf(now, device));
  setText(parts.job, device.job === null ? device.holds || "idle" : `job ${device.job} runs`);
  const budget = device.budget_j ? ` of ${si(device.budget_j, "J", 3)}` : "";
  const joules = device.spent_today_j ? `${si(device.spent_today_j, "J", 3)}${budget} in ` : "";  // none of times alone
  setText(parts.spent, `today: ${joules}${si(device.spent_today_s, "s", 3)} of measuring`);
  plot.draw(samples);
}

function detailsOf(sample, device) {
  if (!sample) return "power is not sampled yet";
  if (sample.failure) return sample.failure;
  const parts = [];
  if (sample.clock_mhz !== null) parts.push(`${Math.round(sample.clock_mhz)} MHz`);
  if (sample.temperature_c !== null) parts.push(`${Math.round(sample.temperature_c)} °C`);
  if (sample.throttle_reasons.length) parts.push(`held back: ${sample.throttle_reasons.join(", ")}`);
  if (sample.others) parts.push(`${sample.others} ${sample.others > 1 ? "processes" : "process"} of others`);
  else if (sample.others === 0) parts.push("nobody else on it");
  if (sample.reading === "trial") parts.push(sample.watts === null ? "the last trial measured time alone" : "mean of the last trial");
  else if (sample.watts === null && device.spec.startsWith("sim:")) parts.push("power is modelled while a job runs");
  return parts.join(" · ");
}
