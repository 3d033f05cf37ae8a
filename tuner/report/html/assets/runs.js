// Ratios between the answers of two runs.

charts.ratios = (_, box, data) => {
  const rows = data.ratios;
  if (!rows.length) return say(box, "The two runs did not tune the same workloads, or one has no answer: ratios would say nothing.");
  show(box, (c) => ({
    grid: place({ left: 80, top: 12 }),
    tooltip: tooltip(c, ({ data: row }) => lines(`${rows[row[1]].name}: ${percent(rows[row[1]].change, 2)}${rows[row[1]].interval == null ? "" : ` ± ${(100 * rows[row[1]].interval).toFixed(2)} %`}`)),
    xAxis: { type: "value", ...axis(c, "B against A, %; line: 95 %", 28), scale: false },
    yAxis: { type: "category", inverse: true, data: rows.map((row) => row.name), axisLabel: { color: c.text }, axisLine: { lineStyle: { color: c.line } } },
    series: [
      whiskers(rows.map((row, i) => [100 * row.change, i, 100 * (row.interval ?? 0), 0]), c.blue),
      { type: "scatter", symbolSize: 12, data: rows.map((row, i) => [100 * row.change, i]), itemStyle: { color: c.blue },
        markLine: { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: c.muted, type: "solid" }, data: [{ xAxis: 0 }] } },
    ],
  }));
};
