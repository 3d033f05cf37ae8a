// What the search saw of each trial, the best so far, and what cannot be told from the lowest.

const ACROSS = [
  { name: "trial", title: "trial", of: (t) => t.number },
  { name: "seconds", title: "seconds since the first trial, on the device's clock", of: (t) => t.took && sums(t.took) },
  { name: "joules", title: "joules spent on trials", of: (t) => t.spent && sums(t.spent) },
];

function sums(values) {
  let total = 0;
  return values.map((value) => (total += value ?? 0));
}

charts.convergence = (run, box) => {
  const { t, seen } = run;
  const known = seen.filter((value) => value !== null);
  if (!known.length) return say(box, "No trial was valid: there is no cost to show.");
  const across = ACROSS.filter((one) => one.of(t));
  const scales = ["near the lowest", "all", "all, logarithmic"];
  let [by, scale] = [0, most(known) > 1.5 * run.lowest ? 0 : 1];
  const { scale: factor, unit } = drawnIn(known, run.unit);
  const picture = show(box, (c) => convergenceOptions(run, c, { across: across[by], scale, factor, unit, top: below(box) }), t.count > 3000);
  const changed = (set) => (value) => {
    set(value);
    picture.redraw();
  };
  controls(box).append(
    choice("over", across.map((one) => one.name), changed((value) => (by = value))),
    choice("costs", scales, changed((value) => (scale = value)), scale),
  );
};

function convergenceOptions(run, c, { across, scale, factor, unit, top: space }) {
  const { t, seen } = run;
  const x = across.of(t);
  const top = scale === 0 ? 1.5 * run.lowest : most(seen.filter((value) => value !== null));
  const bottom = least([run.lowest, ...seen.filter((value) => value !== null)]);
  const points = [];
  const failed = [];
  const best = [];
  let lowest = Infinity;
  seen.forEach((value, i) => {
    if (t.status[i] !== "ok") failed.push([x[i], top / factor, i]);
    if (value === null) return;
    points.push([x[i], value / factor, i]);
    if (value < lowest) {
      lowest = value;
      best.push([x[i], value / factor]);
    }
  });
  best.push([x[t.count - 1], lowest / factor]);
  const ties = run.tied.length > 1 ? run.tied : [];
  const contenders = run.contenders.filter((i) => run.cost[i] !== null && !ties.includes(i));
  const answer = run.named.answer == null || run.cost[run.named.answer] === null ? [] : [run.named.answer];
  const rings = (chosen) => chosen.map((i) => [x[i], run.cost[i] / factor, i]);
  const band = run.band && [[{ yAxis: run.lowest / factor }, { yAxis: (run.lowest * (1 + run.band)) / factor }]];
  const many = t.count > 3000;
  const margin = 0.04 * (top - bottom);
  return {
    grid: place({ top: space }),
    legend: legend(c),
    tooltip: tooltip(c, ({ data }) => (data[2] == null ? "" : trialTip(run, data[2]))),
    xAxis: { type: "value", ...axis(c, across.title, 28), splitLine: { show: false } },
    yAxis: {
      type: scale === 2 ? "log" : "value",
      ...axis(c, marked(run, `${run.objective === "time" || run.objective === "energy" ? run.objective : `cost, ${run.objective},`} of a round, ${unit}`), 50),
      ...(scale === 2 ? {} : { min: tidy((bottom - margin) / factor), max: tidy((top + margin) / factor) }),
      axisLabel: { color: c.muted, hideOverlap: true, showMinLabel: false, showMaxLabel: false },
    },
    dataZoom: [{ type: "inside", xAxisIndex: 0 }],
    series: [
      { name: "trials", type: "scatter", symbolSize: many ? 2.5 : 5, large: many, data: points, itemStyle: { color: c.blue, opacity: 0.55 },
        markArea: band ? { silent: true, itemStyle: { color: c.band }, data: band } : undefined },
      { name: "best so far", type: "line", step: "end", showSymbol: false, silent: true, data: best, lineStyle: { color: c.violet, width: 1.5 }, itemStyle: { color: c.violet } },
      { name: "contenders, repeated", type: "scatter", symbolSize: 11, z: 5, data: rings(contenders), itemStyle: { color: "transparent", borderColor: c.green, borderWidth: 2 } },
      { name: "tie", type: "scatter", symbolSize: 11, z: 6, data: rings(ties.filter((i) => run.cost[i] !== null)), itemStyle: { color: c.green, opacity: 0.6 } },
      { name: "answer", type: "scatter", symbol: "diamond", symbolSize: 15, z: 7, data: rings(answer), itemStyle: { color: c.green, borderColor: c.panel, borderWidth: 1 } },
      { name: "failed", type: "scatter", symbol: "triangle", symbolSize: 8, data: failed, itemStyle: { color: c.red } },
    ].filter((one) => one.data.length),
  };
}

/** An end of an axis with three digits. */
const tidy = (value) => Number(value.toPrecision(3));
