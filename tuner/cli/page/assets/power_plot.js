// The power of one device over the last minutes.

import { colour } from "./dom.js";

const HEIGHT = 72;
const SPAN_S = 300;
const LEAST_SPAN_S = 10;
const HEADROOM = 1.15;

export class PowerPlot {
  constructor(target) {
    this.target = target;
    this.plot = null;
  }

  draw(samples) {
    const known = samples.filter((sample) => sample.watts !== null);
    this.target.hidden = known.length === 0;
    if (!known.length) {
      this.plot?.destroy();
      this.plot = null;
      return;
    }
    const times = known.map((sample) => Date.parse(sample.at) / 1000);
    const data = [times, known.map((sample) => sample.watts)];
    if (!this.plot) this.plot = this.made(data);
    else this.plot.setData(data);
  }

  made(data) {
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: () => colour("muted"), font, grid: { show: false }, ticks: { show: false } };
    const ends = (plot) => [0, Math.round(plot.scales.y.max / HEADROOM)];
    const watts = (_, splits) => splits.map((value) => `${value} W`);
    const options = {
      width: this.target.clientWidth,
      height: HEIGHT,
      cursor: { show: false },
      legend: { show: false },
      scales: {
        x: { range: (_, least, most) => [Math.max(least, most - SPAN_S), Math.max(most, least + LEAST_SPAN_S)] },
        y: { range: (_, least, most) => [0, Math.max(1, HEADROOM * most)] },
      },
      axes: [
        { ...axis, show: false },
        { ...axis, size: 48, values: watts, splits: ends },
      ],
      series: [{}, { stroke: () => colour("accent"), width: 1.5, points: { show: false } }],
    };
    return new uPlot(options, data, this.target);
  }

  resize() {
    this.plot?.setSize({ width: this.target.clientWidth, height: HEIGHT });
  }

  restyle() {
    this.plot?.redraw(false, true);
  }
}
