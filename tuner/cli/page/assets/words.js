// Words of the page for configurations, changes and moments.

import { cell } from "./dom.js";
import { columnText, interval } from "./units.js";

// Columns of trials and answers, as tuner/report/rows.py has them.
export const TIME = { title: "time", unit: "s", value: (trial) => trial.time_s, half: (trial) => interval(trial.time_s_uncertainty) };
export const ENERGY = { title: "energy", unit: "J", value: (trial) => trial.energy_j, half: (trial) => interval(trial.energy_j_uncertainty) };
export const POWER = { title: "power", unit: "W", digits: 3, value: (trial) => trial.watts };
export const SAVING = { title: "one use saves", unit: "J", value: (saving) => saving?.energy_j, half: (saving) => saving?.energy_j_interval ?? null };

/** The number of a row in a column, with its interval and its unit. */
export const textOf = (column, row) => columnText(column, column.value(row), column.half?.(row));
export const numberCell = (column, row) => cell(column.title, textOf(column, row), "number");

/** A share in percent, with half of its 95 % interval. */
function percent(fraction, interval) {
  const half = 100 * (interval ?? 0);
  const decimals = half > 0 ? Math.min(3, Math.max(0, 1 - Math.floor(Math.log10(half)))) : 1;
  return `${(100 * fraction).toFixed(decimals)}${half > 0 ? ` ± ${half.toFixed(decimals)}` : ""} %`;
}

/** The values of a configuration, or of several by their workloads. */
export function configuration(values) {
  return Object.entries(values).map(([name, value]) => `${name}=${value}`).join(" ");
}

export function configurations(byWorkload) {
  const all = Object.entries(byWorkload ?? {});
  return all.map(([name, values]) => (all.length > 1 ? `${name}: ` : "") + configuration(values)).join("\n");
}

/** So many of a thing. */
export function count(number, thing) {
  return `${number.toLocaleString()} ${thing}${number === 1 ? "" : "s"}`;
}

/** A moment in local time. */
export function moment(text) {
  if (!text) return "–";
  return new Date(text).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** How much energy and time an answer takes against the default, in words. */
export function against(comparison) {
  if (!comparison) return "–";
  const parts = [];
  if (comparison.energy_saving !== undefined) {
    parts.push(`saves ${percent(comparison.energy_saving, comparison.energy_saving_interval)} energy`);
  }
  const slower = comparison.slowdown;
  parts.push(`takes ${percent(Math.abs(slower), comparison.slowdown_interval)} ${slower > 0 ? "more" : "less"} time`);
  return parts.join(", ");
}
