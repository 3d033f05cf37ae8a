// What each value of a tunable costs more than the best one, all else equal.

charts.effects = (run, box) => {
  const title = (one) => `${one.tunable} = ${shown(one.value)}  (${one.groups})${run.workloads.length > 1 ? `  ${one.workload}` : ""}`;
  const own = (one) => `${one.workload} ${one.tunable}`;
  show(box, (c) => ({
    grid: place({ left: aside(box, 230), top: 10 }),
    tooltip: tooltip(c, ({ data }) => effectTip(run.effects[data.value ? data.value[2] : data[2]])),
    xAxis: { type: "value", ...axis(c, "above the best value, %", 28), min: 0, scale: false },
    yAxis: { type: "category", inverse: true, data: run.effects.map(title), axisLabel: { color: c.text, width: aside(box, 230) - 14, overflow: "truncate", interval: 0, fontSize: 11 }, axisLine: { lineStyle: { color: c.line } } },
    series: [
      { type: "custom", silent: true, data: run.effects.map((one, i) => [100 * one.least, i, 100 * one.most]), encode: { x: [0, 2], y: 1 },
        renderItem: ({ coordSys }, api) => {
          const [at, from, to] = [api.value(1), api.coord([api.value(0), api.value(1)]), api.coord([api.value(2), api.value(1)])];
          const line = (x1, x2, y, style) => ({ type: "line", shape: { x1, x2, y1: y, y2: y }, style });
          const children = [line(from[0], to[0], from[1], { stroke: c.muted, lineWidth: 1.5 })];
          if (at > 0 && own(run.effects[at]) !== own(run.effects[at - 1])) {
            children.push(line(coordSys.x, coordSys.x + coordSys.width, from[1] - api.size([0, 1])[1] / 2, { stroke: c.line, lineWidth: 1 }));
          }
          return { type: "group", children };
        } },
      { type: "scatter", symbolSize: 8, data: run.effects.map((one, i) => [100 * one.median, i, i]), itemStyle: { color: c.blue },
        markArea: run.band ? { silent: true, itemStyle: { color: c.band }, data: [[{ xAxis: 0 }, { xAxis: 100 * Math.SQRT2 * run.band }]] } : undefined },
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
