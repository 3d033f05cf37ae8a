// Numbers with units, as tuner/model/units.py writes them; for the live page, and for reports in one file.

const PREFIXES = [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];

/** A number with so many significant digits, thousands set apart. */
export function significant(value, digits = 4) {
  if (value === 0) return "0";
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
  return grouped(value, decimals);
}

export function grouped(value, decimals) {
  return value.toLocaleString("en-US", {
    minimumFractionDigits: Math.min(decimals, 20),
    maximumFractionDigits: Math.min(decimals, 20),
  });
}

/** A value with an SI prefix of its unit; a dash where it is not known. */
export function si(value, unit, digits = 4) {
  if (value == null || !Number.isFinite(value)) return "–";
  if (value === 0) return `0 ${unit}`;
  if (Math.abs(value) >= 1000) return `${significant(value, digits)} ${unit}`;
  const rounded = Number(value.toPrecision(digits));
  for (const [scale, prefix] of PREFIXES) {
    if (Math.abs(rounded) >= scale) return `${significant(rounded / scale, digits)} ${prefix}${unit}`;
  }
  return `${rounded.toExponential(digits - 1)} ${unit}`;
}

/** A value with half of its 95 % interval: `0.7710 ± 0.0012 J`. */
export function withInterval(value, half, unit) {
  if (value == null || !Number.isFinite(value)) return "–";
  if (!half) return si(value, unit);
  const larger = Math.max(Math.abs(value), half);
  const [scale, prefix] = PREFIXES.find(([size]) => larger >= size) ?? [1, ""];
  const decimals = Math.max(0, 1 - Math.floor(Math.log10(half / scale)));
  return `${grouped(value / scale, decimals)} ± ${grouped(half / scale, decimals)} ${prefix}${unit}`;
}

/** The prefix in which values of a unit are drawn, by the middle one. */
export function drawnIn(values, unit) {
  const every = Math.max(1, Math.floor(values.length / 999)); // a thousand tell
  const known = values.filter((value, i) => i % every === 0 && value > 0).sort((a, b) => a - b);
  const middle = known.length ? known[known.length >> 1] : 1;
  const [scale, prefix] = PREFIXES.find(([size]) => middle >= size) ?? PREFIXES[3];
  return { scale, unit: `${prefix}${unit}` };
}

/** Half of a 95 % interval from a standard uncertainty. */
export const interval = (unsure) => (unsure == null ? null : 1.96 * unsure);
export const percent = (share, digits = 1) => `${share >= 0 ? "+" : ""}${(100 * share).toFixed(digits)} %`;

/** The text of a value in a column, as tuner/report/rows.py has both. */
export function columnText({ unit, digits = 4, unknown = "–" }, value, half) {
  if (value == null) return unknown;
  if (half !== undefined) return withInterval(value, half, unit);
  return digits ? si(value, unit, digits) : `${Math.round(value)} ${unit}`;
}
