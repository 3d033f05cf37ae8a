// Power over time in the windows of the default and of the contenders.

charts.power = (run, box) => {
  const palette = (c) => [c.blue, c.green, c.amber, c.red, c.violet, c.teal, c.muted];
  show(box, (c) => {
    const series = run.power.flatMap((one, place) => {
      const name = `${one.name}${one.mean == null ? "" : `, ${si(one.mean, "W")}`}`;
      const colour = palette(c)[place % 7];
      return one.series.map((each, window) => ({
        name,
        type: "line",
        step: "end",
        showSymbol: false,
        lineStyle: { color: colour, width: 1.5, type: ["solid", "dashed", "dotted"][window % 3] },
        itemStyle: { color: colour },
        data: each.times_s.map((time, i) => [time, each.watts[i], window + 1]),
      }));
    });
    const ends = run.power.flatMap((one) => one.series.flatMap((each) => each.times_s.slice(-1)));
    return {
      grid: place({ top: 20 + (box.clientWidth < 520 ? 20 * run.power.length : 24 * Math.ceil(run.power.length / 3)) }),
      legend: legend(c),
      tooltip: tooltip(c, (found) => lines(`${found[0].value[0].toFixed(3)} s`, ...found.slice(0, 12).map((one) => `${one.seriesName}, window ${one.value[2]}: ${si(one.value[1], "W")}`)), { trigger: "axis" }),
      xAxis: { type: "value", ...axis(c, "seconds from the begin of the window", 28), max: Math.ceil(20 * most(ends)) / 20, splitLine: { show: false } },
      yAxis: { type: "value", ...axis(c, marked(run, "power, W"), 46) },
      dataZoom: [{ type: "inside", xAxisIndex: 0 }],
      series,
    };
  });
};
