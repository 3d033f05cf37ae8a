// Changes with their intervals: between two runs, or of answers against defaults.

charts.ratios = (_, box, data) => {
  const rows = data.ratios;
  if (!rows.length) return say(box, box.dataset.without);
  show(box, (c) => ({
    grid: place({ left: aside(box, Math.min(260, 30 + 7 * most(rows.map((row) => row.name.length)))), top: 12 }),
    tooltip: tooltip(c, ({ data: row }) => lines(`${rows[row[1]].name}: ${percent(rows[row[1]].change, 2)}${rows[row[1]].interval == null ? "" : ` ± ${(100 * rows[row[1]].interval).toFixed(2)} %`}`)),
    xAxis: { type: "value", ...axis(c, box.dataset.title, 28), scale: false },
    yAxis: { type: "category", inverse: true, data: rows.map((row) => row.name), axisLabel: { color: c.text, width: aside(box, 260) - 20, overflow: "truncate", interval: 0 }, axisLine: { lineStyle: { color: c.line } } },
    series: [
      whiskers(rows.map((row, i) => [100 * row.change, i, 100 * (row.interval ?? 0), 0]), c.blue),
      { type: "scatter", symbolSize: 12, data: rows.map((row, i) => [100 * row.change, i]), itemStyle: { color: c.blue },
        markLine: { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: c.muted, type: "solid" }, data: [{ xAxis: 0 }] } },
    ],
  }));
};
