// What each value of a tunable costs more than the best one, all else equal.

charts.effects = (run, box) => {
  const title = (one) => `${one.tunable} = ${shown(one.value)}  (${one.groups})${run.workloads.length > 1 ? `  ${one.workload}` : ""}`;
  const own = (one) => `${one.workload} ${one.tunable}`;
  show(box, (c) => ({
    grid: place({ left: 230, top: 10 }),
    tooltip: tooltip(c, ({ data }) => effectTip(run.effects[data.value ? data.value[2] : data[2]])),
    xAxis: { type: "value", ...axis(c, "above the best value of the tunable, %; dot: median, line: range, shaded: within how trials repeat", 28), min: 0, scale: false },
    yAxis: { type: "category", inverse: true, data: run.effects.map(title), axisLabel: { color: c.text, width: 216, overflow: "truncate", interval: 0, fontSize: 11 }, axisLine: { lineStyle: { color: c.line } },
      splitLine: { show: true, interval: (line) => line > 1 && own(run.effects[line - 1]) !== own(run.effects[line - 2]), lineStyle: { color: c.muted, opacity: 0.4 } } },
    series: [
      { type: "custom", silent: true, data: run.effects.map((one, i) => [100 * one.least, i, 100 * one.most]), encode: { x: [0, 2], y: 1 },
        renderItem: (_, api) => {
          const [from, to] = [api.coord([api.value(0), api.value(1)]), api.coord([api.value(2), api.value(1)])];
          return { type: "line", shape: { x1: from[0], y1: from[1], x2: to[0], y2: to[1] }, style: { stroke: c.muted, lineWidth: 1.5 } };
        } },
      { type: "scatter", symbolSize: 8, data: run.effects.map((one, i) => [100 * one.median, i, i]), itemStyle: { color: c.blue },
        markArea: run.repeats ? { silent: true, itemStyle: { color: c.band }, data: [[{ xAxis: 0 }, { xAxis: 100 * run.repeats.interval }]] } : undefined },
    ],
  }));
};

function effectTip(one) {
  return lines(
    `${one.workload} ${one.tunable} = ${shown(one.value)}`,
    `median ${percent(one.median)}, from ${percent(one.least)} to ${percent(one.most)} above the best value`,
    `${one.groups} ${one.groups === 1 ? "group" : "groups"} of trials that differ in ${one.tunable} alone`,
  );
}
