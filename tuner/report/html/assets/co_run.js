// The workloads of a co-run: own times together, by default, and each alone.

charts.coRun = (run, box) => {
  const { rows, together, inTurn } = run.coRun;
  const all = together && inTurn ? [...rows, { name: "the round; one after another", answer: { time: together.time_s, share: together.energy_j }, default: null, alone: inTurn }] : rows;
  const times = all.flatMap((row) => [row.answer?.time, row.default?.time, row.alone?.time_s]).filter((time) => time != null);
  const { scale, unit } = drawnIn(times, "s");
  show(box, (c) => coRunOptions(run, c, { rows: all, scale, unit, left: aside(box, 190), top: below(box) }));
};

function coRunOptions(run, c, { rows, scale, unit, left, top }) {
  const bars = (name, colour, of) => ({
    name,
    type: "bar",
    barGap: "10%",
    itemStyle: { color: colour },
    data: rows.map((row) => (of(row) == null ? null : { value: of(row) / scale, row })),
  });
  const series = [
    bars("answer, together", c.green, (row) => row.answer?.time),
    bars("default, together", c.amber, (row) => row.default?.time),
    bars("answer, alone", c.blue, (row) => row.alone?.time_s),
  ].filter((one) => one.data.some((value) => value !== null));
  return {
    grid: place({ left, top }),
    legend: legend(c),
    tooltip: tooltip(c, ({ data, seriesName }) => (data ? coRunTip(run, data.row, seriesName) : "")),
    xAxis: { type: "value", ...axis(c, marked(run, `time in a round, ${unit}`), 28), min: 0, scale: false },
    yAxis: { type: "category", inverse: true, data: rows.map((row) => row.name), axisLabel: { color: c.text, width: left - 14, overflow: "truncate" }, axisLine: { lineStyle: { color: c.line } } },
    series,
  };
}

function coRunTip(run, row, name) {
  const label = run.label ? ` (${run.label})` : "";
  if (name === "answer, alone") {
    return lines(row.name, `alone: ${withInterval(row.alone.time_s, interval(row.alone.time_s_uncertainty), "s")}${label}`,
      row.alone.energy_j == null ? null : withInterval(row.alone.energy_j, interval(row.alone.energy_j_uncertainty), "J"));
  }
  const part = name === "answer, together" ? row.answer : row.default;
  return lines(row.name, `${name}: ${si(part.time, "s")}${label}`, part.share == null ? null : `share of the joules: ${si(part.share, "J")} (modelled)`);
}
