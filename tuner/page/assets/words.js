// Numbers with their units. Uncertainties come as standard ones and are shown as half of a 95 % interval.

const COVERAGE = 1.96;
const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]];

function prefixOf(value) {
  const size = Math.abs(value);
  return PREFIXES.find(([factor]) => size >= factor) ?? PREFIXES.at(-1);
}

/** A value with three or more digits and its unit; "–" for none. */
export function si(value, unit, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return `0 ${unit}`;
  const [factor, prefix] = prefixOf(value);
  return `${Number((value / factor).toPrecision(digits))} ${prefix}${unit}`;
}

/** A value with half of its 95 % interval, both in the unit that fits the value. */
export function withInterval(value, interval, unit) {
  if (value === null || value === undefined) return "–";
  if (!interval) return si(value, unit);
  const [factor, prefix] = prefixOf(Math.max(Math.abs(value), interval));
  const half = interval / factor;
  const decimals = Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(half))));
  return `${(value / factor).toFixed(decimals)} ± ${half.toFixed(decimals)} ${prefix}${unit}`;
}

/** A value with its standard uncertainty, shown as half of a 95 % interval. */
export function measured(value, uncertainty, unit) {
  return withInterval(value, COVERAGE * (uncertainty ?? 0), unit);
}

/** Half of the 95 % interval of a standard uncertainty. */
export const halfInterval = (uncertainty) => COVERAGE * (uncertainty ?? 0);

/** A fraction in percent, with half of its 95 % interval. */
export function percent(fraction, interval) {
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
