// The trials of a run, from the columns that tuner/report/html/markup.py has packed.

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** A run with its trials as arrays: numbers in SI units, null where one is not known. */
async function opened(run) {
  if (!run.trials) return { ...run, t: null };
  const { columns, count, workloads, ...lists } = run.trials;
  const packed = await unpacked(columns);
  const numbers = (name) => {
    const column = packed[name];
    if (!column) return new Array(count).fill(null);
    return column.values.map((value) => (value === null ? null : value * column.scale));
  };
  const values = (list, name) => packed[name].map((place) => list[place]);
  const t = {
    count,
    number: packed.number ?? Array.from({ length: count }, (_, i) => i + 1),
    time: numbers("time"),
    timeUnsure: numbers("timeUnsure"),
    energy: numbers("energy"),
    energyUnsure: numbers("energyUnsure"),
    power: numbers("power"),
    clockSeen: numbers("clockSeen"),
    took: packed.took ? numbers("took") : null,
    spent: packed.spent ? numbers("spent") : null,
    clock: values(lists.clocks, "clock"),
    limit: values(lists.limits, "limit"),
    status: values(lists.statuses, "status"),
    flags: values(lists.flags, "flags"),
    detail: values(lists.details, "detail"),
  };
  const tunables = workloads.flatMap((workload, place) =>
    workload.tunables.map(({ name, values: list }) => ({
      workload: workload.name,
      place,
      name,
      title: workloads.length > 1 ? `${name} – ${workload.name}` : name,
      values: list,
      index: packed[`tunable ${place} ${name}`],
    })),
  );
  for (const [name, key, list] of [["clock, MHz", "clock", lists.clocks], ["power limit, W", "limit", lists.limits]]) {
    if (list.length > 1) tunables.push({ workload: null, place: -1, name, title: name, values: list, index: packed[key] });
  }
  const names = workloads.map((workload) => workload.name);
  const opened = { ...run, t, tunables, workloads: names };
  opened.cost = t.time.map((time, i) => cost(run, t.status[i], time, t.energy[i]));
  opened.seen = opened.cost.map((known, i) => {
    const searched = run.searched[i];
    return searched ? cost(run, t.status[i], searched.time, searched.energy) : known;
  });
  const known = opened.cost.filter((value) => value !== null);
  const contenders = run.contenders.map((i) => opened.cost[i]).filter((value) => value !== null);
  opened.lowest = least(contenders.length ? contenders : known);
  opened.band = bandOf(opened);
  return opened;
}

/** What the objective counts; null for a trial without it. */
function cost(run, status, time, energy) {
  if (status !== "ok" || time === null || (run.limit !== null && time > run.limit)) return null;
  if (!run.needsEnergy) return time;
  return energy === null ? null : energy * time ** run.exponent;
}

/** What cannot be told from the lowest cost, relative to it: its own 95 % interval, how trials repeat, or those that tie. */
function bandOf(run) {
  const lowest = run.cost.indexOf(run.lowest);
  const { time, timeUnsure, energy, energyUnsure } = run.t;
  const parts = lowest < 0 ? [] : [(run.needsEnergy ? 1 : 0) * (energyUnsure[lowest] ?? 0) / (energy[lowest] || 1), run.exponent * (timeUnsure[lowest] ?? 0) / (time[lowest] || 1)];
  const ties = run.tied.map((i) => run.cost[i] / run.lowest - 1);
  return Math.max(interval(Math.hypot(...parts)), run.repeats?.interval ?? 0, ...ties);
}

const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);

const shown = (value) => (value === null ? "–" : value === true ? "1" : value === false ? "0" : String(value));

/** The configuration of a trial, a line for each workload. */
function configuration(run, i) {
  const found = run.workloads.map((name, place) => {
    const own = run.tunables.filter((one) => one.place === place && one.values[one.index[i]] !== null);
    const words = own.map((one) => `${one.name}=${shown(one.values[one.index[i]])}`).join(" ");
    return run.workloads.length > 1 ? `${name}: ${words}` : words;
  });
  if (run.t.clock[i] !== null) found.push(`clock ${run.t.clock[i]} MHz`);
  if (run.t.limit[i] !== null) found.push(`power limit ${run.t.limit[i]} W`);
  return found;
}

/** What a trial is known for. */
function marks(run, i) {
  const found = Object.entries(run.named).filter(([, at]) => at === i).map(([word]) => word);
  if (run.ties.includes(i)) found.push("tie");
  return found;
}

/** The name of an axis, with what kind of numbers it has. */
const marked = (run, name) => (run.label ? `${name} (${run.label})` : name);

/** What a tooltip says of a trial. */
function trialTip(run, i) {
  const { t } = run;
  const known = marks(run, i);
  const label = run.label ? ` (${run.label})` : "";
  const again = run.contenders.includes(i) ? ", measured again in turn" : "";
  return lines(
    `trial ${t.number[i]}${known.length ? `: ${known.join(", ")}` : ""}${again}`,
    ...configuration(run, i),
    t.time[i] === null ? null : `${withInterval(t.time[i], interval(t.timeUnsure[i]), "s")} per round${label}`,
    t.energy[i] === null ? null : `${withInterval(t.energy[i], interval(t.energyUnsure[i]), "J")}, ${si(t.power[i], "W")}${label}`,
    t.status[i] === "ok" ? null : `${t.status[i]}: ${t.detail[i]}`,
    t.flags[i] || null,
  );
}
