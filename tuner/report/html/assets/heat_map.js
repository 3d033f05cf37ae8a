// The lowest cost for each pair of values of two tunables.

const MOST_WORDS = 100; // cells with numbers in them

charts.heatMap = (run, box) => {
  const varied = run.tunables.filter((one) => one.values.length > 1);
  if (varied.length < 2 || run.cost.every((value) => value === null)) return say(box, "Fewer than two tunables have more than one value.");
  const tried = varied.map((one) => new Set(one.index).size);
  const first = varied.map((_, place) => place).sort((a, b) => tried[b] - tried[a]);
  let [across, up] = [first[0], first[1]];
  const picture = show(box, (c) => heatMapOptions(run, c, varied[across], varied[up], box.clientWidth));
  const titles = varied.map((one) => one.title);
  const changed = (set) => (value) => {
    set(value);
    picture.redraw();
  };
  controls(box).append(
    choice("across", titles, changed((value) => (across = value)), across),
    choice("up", titles, changed((value) => (up = value)), up),
  );
};

function heatMapOptions(run, c, across, up, width) {
  const narrow = width < 520;
  const [left, right] = narrow ? [76, 12] : [110, 96];
  const cells = new Map();
  run.cost.forEach((value, i) => {
    if (value === null) return;
    const key = across.index[i] * up.values.length + up.index[i];
    const cell = cells.get(key) ?? { lowest: Infinity, count: 0, at: i };
    if (value < cell.lowest) Object.assign(cell, { lowest: value, at: i });
    cell.count += 1;
    cells.set(key, cell);
  });
  const lowest = least([...cells.values()].map((cell) => cell.lowest));
  const data = [...cells].map(([key, cell]) => [Math.floor(key / up.values.length), key % up.values.length, 100 * (cell.lowest / lowest - 1), cell.at, cell.count]);
  const highest = Math.max(1, Math.min(50, most(data.map((row) => row[2]))));
  const names = (tunable) => tunable.values.map(shown);
  const side = (tunable, gap) => ({ type: "category", data: names(tunable), name: tunable.title, nameLocation: "middle", nameGap: gap, nameTextStyle: { color: c.muted }, axisLabel: { color: c.text, hideOverlap: true, width: 90, overflow: "truncate" }, axisLine: { lineStyle: { color: c.line } }, splitArea: { show: false } });
  return {
    grid: place({ left, right, top: 12, bottom: 50 }),
    tooltip: tooltip(c, ({ data: row }) => {
      const tip = trialTip(run, row[3]);
      tip.prepend(element("div", {}, `${across.title} = ${shown(across.values[row[0]])}, ${up.title} = ${shown(up.values[row[1]])}: ${row[2].toFixed(1)} % above the lowest, ${row[4]} ${row[4] === 1 ? "trial" : "trials"}`));
      return tip;
    }),
    xAxis: side(across, 30),
    yAxis: side(up, narrow ? 58 : 92),
    visualMap: { show: !narrow, min: 0, max: highest, calculable: false, right: 0, top: 12, itemHeight: 180, itemWidth: 12, dimension: 2, text: [`${highest.toFixed(0)} % or more`, "lowest"], textStyle: { color: c.muted, fontSize: 11 }, inRange: { color: [c.cold, c.pale, c.warm] } },
    series: [{ type: "heatmap", data, label: { show: data.length <= MOST_WORDS && (width - left - right) / across.values.length > 34, fontSize: 11, color: "#111", formatter: ({ data: row }) => row[2].toFixed(1) }, itemStyle: { borderColor: c.panel, borderWidth: 1 } }],
  };
}
