// Configurations of one workload: a line for each trial near the lowest cost, over the values of its tunables.

const MOST_LINES = 1500;

charts.parallel = (run, box) => {
  const own = run.tunables.filter((one) => (one.place === Number(box.dataset.workload) || one.place < 0) && one.values.length > 1);
  const near = [...run.cost.keys()]
    .filter((i) => run.cost[i] !== null && run.cost[i] <= 1.5 * run.lowest)
    .sort((a, b) => run.cost[b] - run.cost[a]);
  if (!own.length || !near.length) return say(box, "No tunable has more than one value.");
  const kept = near.slice(-MOST_LINES);
  box.style.minWidth = `${64 * (own.length + 3)}px`; // axes need room for their names: a narrow page scrolls
  show(box, (c) => parallelOptions(run, c, own, kept), kept.length > 400);
};

function parallelOptions(run, c, own, kept) {
  const { t } = run;
  const answer = run.named.answer;
  const x = drawnIn(kept.map((i) => t.time[i]), "s");
  const y = drawnIn(kept.map((i) => t.energy[i] ?? 0), "J");
  const joules = kept.some((i) => t.energy[i] !== null);
  const side = { nameTextStyle: { color: c.text, fontSize: 11 }, axisLabel: { color: c.muted, fontSize: 11 }, axisLine: { lineStyle: { color: c.muted } }, nameTruncate: { maxWidth: 110 } };
  const axes = own.map((one, dim) => ({ dim, name: one.name, type: "category", data: one.values.map(shown), ...side }));
  axes.push({ dim: own.length, name: `time, ${x.unit}`, type: "value", scale: true, ...side });
  if (joules) axes.push({ dim: own.length + 1, name: `energy, ${y.unit}`, type: "value", scale: true, ...side });
  const share = (i) => Math.min(1, (run.cost[i] / run.lowest - 1) / 0.5);
  const colour = (i) => (i === answer ? c.green : share(i) < 0.05 ? c.blue : share(i) < 0.25 ? c.teal : c.muted);
  const ordered = kept.filter((i) => i !== answer).concat(kept.includes(answer) ? [answer] : []);
  return {
    tooltip: tooltip(c, ({ data }) => trialTip(run, data.trial)),
    parallel: { left: 50, right: 70, top: 46, bottom: 22, axisExpandable: false },
    parallelAxis: axes,
    series: [{
      type: "parallel",
      smooth: false,
      data: ordered.map((i) => ({
        trial: i,
        value: [...own.map((one) => shown(one.values[one.index[i]])), t.time[i] / x.scale, ...(joules ? [t.energy[i] === null ? "-" : t.energy[i] / y.scale] : [])],
        lineStyle: { color: colour(i), width: i === answer ? 3 : 1, opacity: i === answer ? 1 : 0.45 },
      })),
    }],
  };
}
