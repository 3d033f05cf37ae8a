// Time against energy of a search's trials: contenders with their intervals, and the front that nothing beats.

import { colour, element } from "./dom.js";
import { interval, si } from "./units.js";
import { ENERGY, POWER, TIME, configurations, textOf } from "./words.js";

const WINDOW = 1.5; // times the front's largest: beyond it no point is shown unless all are wanted
const MOST_SHOWN = 0.9; // of the trials, which have room beside the front
const MARGIN = 1.05;
const POINT = 5;

/** Trials that no other beats in both time and energy, the fastest first. */
export function front(trials) {
  let least = Infinity;
  return [...trials]
    .sort((one, other) => one.time_s - other.time_s || one.energy_j - other.energy_j)
    .filter((trial) => trial.energy_j < least && ((least = trial.energy_j), true));
}

/** The largest value that is shown: that of the front and of most others, and no outlier. */
function limit(values, ofFront) {
  const sorted = [...values].sort((one, other) => one - other);
  const most = sorted[Math.ceil(MOST_SHOWN * sorted.length) - 1];
  return MARGIN * Math.max(ofFront, Math.min(most, WINDOW * ofFront));
}

// Marks of an axis are short: without zeros at their ends.
const short = (text) => text.replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
const inUnit = (unit) => (_, splits) => splits.map((value) => (unit ? short(si(value, unit, 6)) : String(value)));

function span(_, least, most) {
  const margin = 0.06 * (most - least || most || 1);
  return [Math.max(0, least - margin), most + margin];
}

// What is drawn: time against energy, or time over the trials where no energy is measured.
const PARETO = {
  across: (trial) => trial.time_s,
  up: (trial) => trial.energy_j,
  labels: ["time of a round", "energy of a round"],
  units: ["s", "J"],
};
const TIMES = { across: (trial) => trial.trial, up: (trial) => trial.time_s, labels: ["trial", "time of a round"], units: ["", "s"] };

export class ParetoPlot {
  constructor(target) {
    this.target = target;
    this.plot = null;
    this.axes = PARETO;
    this.shown = [];
    this.tip = element("div", null, "tip");
    this.tip.hidden = true;
    target.append(this.tip);
  }

  /** Draw trials; `all` leaves none of them out of the window. Returns the front, and how many are left out. */
  draw(trials, all) {
    const timed = trials.filter((trial) => trial.time_s !== null);
    const known = timed.filter((trial) => trial.energy_j !== null);
    const axes = known.length || !timed.length ? PARETO : TIMES;
    const wanted = axes === PARETO ? known : timed;
    const best = front(known);
    const most = { time: Infinity, energy: Infinity };
    if (best.length && !all) {
      most.time = limit(known.map((trial) => trial.time_s), best.at(-1).time_s);
      most.energy = limit(known.map((trial) => trial.energy_j), best[0].energy_j);
    }
    this.shown = wanted
      .filter((trial) => trial.time_s <= most.time && (trial.energy_j ?? 0) <= most.energy)
      .sort((one, other) => axes.across(one) - axes.across(other));
    this.show(axes, new Set(best));
    return { front: best, left: wanted.length - this.shown.length };
  }

  show(axes, best) {
    const y = (wanted) => this.shown.map((trial) => (wanted(trial) ? axes.up(trial) : null));
    const data = [
      this.shown.map(axes.across),
      y((trial) => !trial.confirming),
      y((trial) => best.has(trial)),
      y((trial) => trial.confirming),
    ];
    if (this.axes !== axes) {
      this.plot?.destroy();
      this.plot = null;
      this.axes = axes;
    }
    if (this.plot) this.plot.setData(data);
    else this.plot = this.made(data);
  }

  made(data) {
    const { labels, units } = this.axes;
    const font = "12px system-ui, sans-serif";
    const grid = { stroke: () => colour("line"), width: 1 };
    const axis = { stroke: () => colour("muted"), font, labelFont: font, grid, ticks: { show: false } };
    const points = (name, size) => ({ show: true, size, fill: () => colour(name), stroke: () => colour(name) });
    const line = { stroke: () => colour("accent"), width: 2, spanGaps: true, paths: uPlot.paths.stepped({ align: 1 }) };
    const options = {
      ...this.size(),
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: false, range: span }, y: { range: span } },
      axes: [
        { ...axis, label: labels[0], space: 70, values: inUnit(units[0]) },
        { ...axis, label: labels[1], size: 76, values: inUnit(units[1]) },
      ],
      series: [
        {},
        { label: "trials", paths: () => null, points: points("muted", POINT) },
        { label: "front", ...line, points: { show: false } },
        { label: "contenders", paths: () => null, points: points("accent", POINT + 3) },
      ],
      hooks: { draw: [(plot) => this.drawIntervals(plot)], setCursor: [(plot) => this.showTip(plot)] },
    };
    return new uPlot(options, data, this.target);
  }

  /** Bars of half a 95 % interval to each side, of contenders. */
  drawIntervals(plot) {
    const { ctx: context, bbox } = plot;
    context.save();
    context.beginPath();
    context.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    context.clip();
    context.strokeStyle = colour("accent");
    context.lineWidth = window.devicePixelRatio;
    context.beginPath();
    for (const trial of this.shown) {
      if (!trial.confirming || this.axes !== PARETO) continue;
      const at = (scale, value) => plot.valToPos(value, scale, true);
      const [time, energy] = [interval(trial.time_s_uncertainty) ?? 0, interval(trial.energy_j_uncertainty) ?? 0];
      context.moveTo(at("x", trial.time_s - time), at("y", trial.energy_j));
      context.lineTo(at("x", trial.time_s + time), at("y", trial.energy_j));
      context.moveTo(at("x", trial.time_s), at("y", trial.energy_j - energy));
      context.lineTo(at("x", trial.time_s), at("y", trial.energy_j + energy));
    }
    context.stroke();
    context.restore();
  }

  /** Tell of the trial nearest to the pointer. */
  showTip(plot) {
    const { left, top } = plot.cursor;
    const near = left < 0 ? null : this.nearest(plot, left, top);
    this.tip.hidden = near === null;
    if (near === null) return;
    this.tip.textContent = trialWords(near);
    const right = left < plot.over.clientWidth / 2;
    this.tip.style.left = right ? `${left + plot.over.offsetLeft + 14}px` : "auto";
    this.tip.style.right = right ? "auto" : `${this.target.clientWidth - left - plot.over.offsetLeft + 14}px`;
    this.tip.style.top = `${Math.max(0, top - 10)}px`;
  }

  nearest(plot, left, top) {
    let found = null;
    let least = 400; // square of 20 pixels
    for (const trial of this.shown) {
      const across = plot.valToPos(this.axes.across(trial), "x") - left;
      const down = plot.valToPos(this.axes.up(trial), "y") - top;
      const distance = across * across + down * down;
      if (distance < least) [found, least] = [trial, distance];
    }
    return found;
  }

  size() {
    return { width: this.target.clientWidth, height: this.target.clientHeight };
  }

  resize() {
    this.plot?.setSize(this.size());
  }

  restyle() {
    this.plot?.redraw(false, true);
  }
}

/** A trial in words. */
export function trialWords(trial) {
  const repeats = trial.confirming ? `, measured ${trial.repeat} more times` : "";
  return [
    `trial ${trial.trial}${repeats}${trial.modelled ? " (modelled)" : ""}`,
    `${textOf(TIME, trial)}, ${textOf(ENERGY, trial)}`,
    [trial.watts === null ? "" : textOf(POWER, trial), clockWords(trial)].filter(Boolean).join(", "),
    configurations(trial.configurations),
    ...trial.flags,
  ].filter(Boolean).join("\n");
}

export function clockWords(trial) {
  if (trial.clock_set_mhz !== null) return `${trial.clock_set_mhz} MHz, set`;
  return trial.clock_mhz === null ? "" : `${Math.round(trial.clock_mhz)} MHz`;
}
