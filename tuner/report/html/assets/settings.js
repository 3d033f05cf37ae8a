// Energy and time over the GPU clock, or over the power limit.

charts.setting = (run, box) => {
  const { key, unit, points } = run.curves[box.dataset.of];
  const named = run.named.answer == null ? null : box.dataset.of === "clock" ? run.t?.clock[run.named.answer] : run.t?.limit[run.named.answer];
  const x = drawnIn(points.map((one) => one.time_s), "s");
  const y = drawnIn(points.map((one) => one.joules ?? 0), "J");
  const title = box.dataset.of === "clock" ? `GPU clock, ${unit}` : `power limit, ${unit}`;
  show(box, (c) => settingOptions(run, c, { key, unit, points, named, x, y, title }));
};

function settingOptions(run, c, { key, unit, points, named, x, y, title }) {
  const joules = points.filter((one) => one.joules != null);
  const curve = (name, colour, of, half, axisIndex, more) => {
    const rows = of.map((one) => [one[key], more(one), 0, half(one) ?? 0]);
    return [
      { ...whiskers(rows, colour), name, yAxisIndex: axisIndex },
      { name, type: "line", yAxisIndex: axisIndex, symbolSize: 8, lineStyle: { color: colour, type: axisIndex ? "dotted" : "solid" }, itemStyle: { color: colour },
        data: of.map((one) => ({ value: [one[key], more(one)], point: one, symbol: one.kind === "modelled" ? "emptyCircle" : "circle" })) },
    ];
  };
  const answer = named == null ? undefined : { silent: true, symbol: "none", label: { formatter: "answer", color: c.green }, lineStyle: { color: c.green }, data: [{ xAxis: named }] };
  const series = [
    ...(joules.length ? curve("energy", c.blue, joules, (one) => interval(one.joules_uncertainty) / y.scale, 0, (one) => one.joules / y.scale) : []),
    ...curve("time", c.amber, points, (one) => interval(one.time_s_uncertainty) / x.scale, joules.length ? 1 : 0, (one) => one.time_s / x.scale),
  ];
  series[series.length - 1].markLine = answer;
  const ends = (of, value, half, scale) => {
    const reach = of.map((one) => [one[value] - half(one), one[value] + half(one)]);
    const [low, high] = [least(reach.map((pair) => pair[0])), most(reach.map((pair) => pair[1]))];
    const margin = 0.06 * (high - low);
    return { min: tidy((low - margin) / scale), max: tidy((high + margin) / scale), axisLabel: { color: c.muted, hideOverlap: true, showMinLabel: false, showMaxLabel: false } };
  };
  const ofTime = ends(points, "time_s", (one) => interval(one.time_s_uncertainty) ?? 0, x.scale);
  const time = axis(c, marked(run, `time, ${x.unit}`), 46, { position: joules.length ? "right" : "left", ...ofTime });
  return {
    grid: place({ right: joules.length ? 66 : 24 }),
    legend: legend(c),
    tooltip: tooltip(c, ({ data }) => (data.point ? settingTip(run, data.point, key, unit) : "")),
    xAxis: { type: "value", ...axis(c, title, 28) },
    yAxis: joules.length ? [axis(c, marked(run, `energy, ${y.unit}`), 50, ends(joules, "joules", (one) => interval(one.joules_uncertainty) ?? 0, y.scale)), { ...time, splitLine: { show: false } }] : [time],
    series,
  };
}

function settingTip(run, one, key, unit) {
  const label = one.kind === "modelled" ? "modelled" : ["measured", run.label].filter(Boolean).join(", ");
  return lines(
    `${one[key]} ${unit} (${label})`,
    `${withInterval(one.time_s, interval(one.time_s_uncertainty), "s")} per round`,
    one.joules == null ? null : withInterval(one.joules, interval(one.joules_uncertainty), "J"),
  );
}
