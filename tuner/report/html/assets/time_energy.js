// Time against energy with intervals, and the trials that no other beats in both.

const NAMED = [["answer", "diamond", "green"], ["default", "rect", "amber"], ["fastest", "triangle", "red"], ["least energy", "circle", "teal"], ["solo bests", "roundRect", "violet"]];

charts.timeEnergy = (run, box) => {
  const { t } = run;
  const valid = [...t.time.keys()].filter((i) => t.status[i] === "ok" && t.time[i] !== null && t.energy[i] !== null);
  if (!valid.length) return say(box, "No valid trial has joules.");
  const front = frontOf(run, valid);
  const x = drawnIn(valid.map((i) => t.time[i]), "s");
  const y = drawnIn(valid.map((i) => t.energy[i]), "J");
  const near = { time: 1.5 * least(valid.map((i) => t.time[i])), energy: 1.5 * least(valid.map((i) => t.energy[i])) };
  for (const i of Object.values(run.named)) {
    if (t.time[i] !== null && t.energy[i] !== null) {
      near.time = Math.max(near.time, 1.02 * t.time[i]);
      near.energy = Math.max(near.energy, 1.02 * t.energy[i]);
    }
  }
  near.time = Math.min(near.time, 1.02 * most(valid.map((i) => t.time[i])));
  near.energy = Math.min(near.energy, 1.02 * most(valid.map((i) => t.energy[i])));
  const outside = valid.filter((i) => t.time[i] > near.time || t.energy[i] > near.energy).length;
  let all = outside === 0;
  const picture = show(box, (c) => timeEnergyOptions(run, c, { valid, front, x, y, near: all ? null : near, top: below(box), most: Number(box.dataset.whiskers) }), valid.length > 3000);
  if (outside) {
    controls(box).append(choice("trials", [`near the best (${outside} outside)`, "all"], (value) => {
      all = value === 1;
      picture.redraw();
    }));
  }
};

/** Trials that no other beats in time and energy, by time. */
function frontOf(run, valid) {
  const { time, energy } = run.t;
  let lowest = Infinity;
  return [...valid]
    .sort((a, b) => time[a] - time[b] || energy[a] - energy[b])
    .filter((i) => energy[i] < lowest && ((lowest = energy[i]), true));
}

/** Trials that are known for something, one mark each: that of the answer before the others. */
function namedOf(run, valid) {
  const found = [];
  for (const [word, symbol, colour] of NAMED) {
    const place = run.named[word];
    if (place == null || !valid.includes(place)) continue;
    const known = found.find((one) => one.place === place);
    if (known) known.words += `, ${word}`;
    else found.push({ words: word, symbol, colour, place });
  }
  return found;
}

function timeEnergyOptions(run, c, { valid, front, x, y, near, top, most: mostWhiskers }) {
  const { t } = run;
  const clocks = [...new Set(valid.map((i) => t.clock[i]))].filter((mhz) => mhz !== null);
  const at = (i) => [t.time[i] / x.scale, t.energy[i] / y.scale, i, t.clock[i]];
  const named = namedOf(run, valid);
  const whiskered = valid.length <= mostWhiskers ? valid : [...new Set([...front, ...named.map((one) => one.place)])];
  const bars = whiskered.map((i) => [...at(i).slice(0, 2), (interval(t.timeUnsure[i]) ?? 0) / x.scale, (interval(t.energyUnsure[i]) ?? 0) / y.scale]);
  const many = valid.length > 3000;
  const ends = near ? { axisLabel: { color: c.muted, hideOverlap: true, showMaxLabel: false } } : {};
  const byClock = clocks.length > 1 && !many;
  return {
    grid: place({ right: byClock ? 74 : 24, top }),
    legend: legend(c, { data: ["trials", "front", ...named.map((one) => one.words)] }),
    tooltip: tooltip(c, ({ data }) => (data[2] == null ? "" : trialTip(run, data[2]))),
    xAxis: { type: "value", ...axis(c, marked(run, `time of a round, ${x.unit}`), 28, ends), max: near ? tidy(near.time / x.scale) : undefined },
    yAxis: { type: "value", ...axis(c, marked(run, `energy of a round, ${y.unit}`), 50, ends), max: near ? tidy(near.energy / y.scale) : undefined },
    dataZoom: [{ type: "inside", xAxisIndex: 0 }, { type: "inside", yAxisIndex: 0 }],
    visualMap: byClock
      ? { type: "continuous", dimension: 3, seriesIndex: 1, min: least(clocks), max: most(clocks), right: 0, top: 30, itemHeight: 120, itemWidth: 10,
          text: [`${most(clocks)} MHz`, `${least(clocks)}`], textStyle: { color: c.muted, fontSize: 11 }, inRange: { color: [c.teal, c.blue, c.violet] } }
      : undefined,
    series: [
      { ...whiskers(bars, c.muted), name: "95 %" },
      { name: "trials", type: "scatter", symbolSize: many ? 2.5 : 6, large: many, data: valid.map(at), itemStyle: { color: c.blue, opacity: 0.7 } },
      { name: "front", type: "line", step: "end", showSymbol: false, silent: true, data: front.map((i) => at(i).slice(0, 2)), lineStyle: { color: c.violet, width: 1.2, type: "dashed" }, itemStyle: { color: c.violet } },
      ...named.map(({ words, symbol, colour, place }) => ({ name: words, type: "scatter", symbol, symbolSize: 13, z: place === run.named.answer ? 7 : 6, data: [at(place)], itemStyle: { color: c[colour], borderColor: c.panel, borderWidth: 1 } })),
    ],
  };
}
