// The table of all trials: sorted by a head, filtered by words and conditions, a page at a time.

const ON_A_PAGE = 50;
const SIGNS = /\s*(<=|>=|!=|==|<|>|=)\s*/g;
const CONDITION = /^(.+?)(<=|>=|!=|==|<|>|=)(.+)$/;

charts.trials = (run, box) => {
  const columns = trialColumns(run);
  const values = valuesByName(run);
  const state = { sort: 0, down: false, filter: "", page: 0 };
  const count = element("span", { class: "sub" });
  const body = element("tbody");
  const heads = columns.map((column, place) => {
    const sort = () => {
      state.down = state.sort === place && !state.down;
      state.sort = place;
      draw();
    };
    return element("th", { scope: "col", class: column.number ? "number" : "name" }, element("button", { type: "button", class: "sort", onclick: sort, title: column.of ? `${column.title} of ${column.of}` : "sort" }, column.title, column.of ? element("small", {}, column.of) : null));
  });
  const step = (by) => () => {
    state.page += by;
    draw();
  };
  const back = element("button", { type: "button", onclick: step(-1) }, "previous");
  const on = element("button", { type: "button", onclick: step(1) }, "next");
  const input = element("input", { type: "search", placeholder: "filter", "aria-label": "filter of trials" });
  input.addEventListener("input", () => {
    Object.assign(state, { filter: input.value, page: 0 });
    draw();
  });
  controls(box).append(input, back, on, count);
  box.append(element("div", { class: "scroll", tabindex: 0 }, element("table", {}, element("thead", {}, element("tr", {}, ...heads, element("th", {}))), body)));

  function draw() {
    const { found, unknown } = filtered(run, columns, values, state.filter);
    const rows = sorted(found, columns[state.sort], state.down);
    const pages = Math.max(1, Math.ceil(rows.length / ON_A_PAGE));
    state.page = Math.min(Math.max(0, state.page), pages - 1);
    const from = state.page * ON_A_PAGE;
    const visible = rows.slice(from, from + ON_A_PAGE);
    back.disabled = state.page === 0;
    on.disabled = state.page >= pages - 1;
    count.textContent = unknown ? `no trial has ${unknown}; choose from ${[...values.keys()].join(", ")}` : rows.length ? `${from + 1} to ${from + visible.length} of ${rows.length.toLocaleString("en-US")}` : "none";
    heads.forEach((head, place) => head.setAttribute("aria-sort", place !== state.sort ? "none" : state.down ? "descending" : "ascending"));
    body.replaceChildren(...visible.map((i) => trialRow(run, columns, i)));
  }
  draw();
};

function trialColumns(run) {
  const { t } = run;
  const ranks = ranksOf(run);
  const some = (values) => values.some((value) => value !== null);
  const found = [
    { title: "rank", number: true, value: (i) => ranks[i], text: (i) => (ranks[i] === null ? "–" : String(ranks[i])) },
  ];
  for (const column of run.columns.filter(({ key }) => key === "time" || some(t[key]))) {
    const values = t[column.key];
    const unsure = column.interval ? t[`${column.key}Unsure`] : null;
    found.push({ title: column.title, number: true, value: (i) => values[i], text: (i) => columnText(column, values[i], unsure ? interval(unsure[i]) : undefined) });
  }
  // behind time and energy, which a phone has room for
  found.push({ title: "known for", number: false, value: (i) => marks(run, i).join(", "), text: (i) => [...marks(run, i), ...(run.contenders.includes(i) ? ["repeated"] : [])].join(", ") });
  found.push({ title: "trial", number: true, value: (i) => t.number[i], text: (i) => String(t.number[i]) });
  for (const one of run.tunables.filter((each) => each.place >= 0 && each.values.length > 1)) {
    const value = (i) => one.values[one.index[i]];
    found.push({ title: one.name, of: run.workloads.length > 1 ? one.workload : null, number: false, value, text: (i) => shown(value(i)) });
  }
  found.push({ title: "status and flags", number: false, long: true, value: (i) => t.status[i], text: (i) => [t.status[i] === "ok" ? "" : `${t.status[i]}: ${t.detail[i]}`, t.flags[i]].filter(Boolean).join("; ") || "ok" });
  return found;
}

/** Places by cost, the answer first; null without a cost. */
function ranksOf(run) {
  const ranks = new Array(run.t.count).fill(null);
  [...run.cost.keys()]
    .filter((i) => run.cost[i] !== null)
    .sort((a, b) => (b === run.named.answer) - (a === run.named.answer) || run.cost[a] - run.cost[b])
    .forEach((i, place) => (ranks[i] = place + 1));
  return ranks;
}

/** What conditions may name, as `values_of` of tuner/report/trials_table.py has it: a function of the trial each. */
function valuesByName(run) {
  const { t } = run;
  const ranks = ranksOf(run);
  const found = new Map([
    ["number", (i) => t.number[i]],
    ["rank", (i) => ranks[i]],
    ["time_s", (i) => t.time[i]],
    ["energy_j", (i) => t.energy[i]],
    ["energy_j_uncertainty", (i) => t.energyUnsure[i]],
    ["power_w", (i) => t.power[i]],
    ["clock_mhz", (i) => t.clock[i]],
    ["power_limit_w", (i) => t.limit[i]],
    ["status", (i) => t.status[i]],
  ]);
  const add = (name, value) => found.has(name) || found.set(name, value);
  const tunables = run.tunables.filter((one) => one.place >= 0);
  for (const one of tunables) {
    const value = (i) => one.values[one.index[i]];
    if (run.workloads.length > 1) add(`${one.name}_${one.place + 1}`, value);
    if (tunables.filter((other) => other.name === one.name).length === 1) add(one.name, value);
  }
  for (const [short, name] of Object.entries(run.shortNames)) add(short, found.get(name));
  return found;
}

/** Trials that have all words and fulfil all conditions; `unknown` is a name of a condition that no trial has. */
function filtered(run, columns, values, text) {
  let unknown = null;
  const words = text.replace(SIGNS, "$1").split(/\s+/).filter((word) => word && word !== "and");
  const tests = words.map((word) => {
    const [, name, sign, wanted] = CONDITION.exec(word) ?? [];
    if (name && !values.has(name)) unknown = name;
    if (name) return (i) => !unknown && holds(values.get(name)(i), sign, wanted.replace(/^(["'])(.*)\1$/, "$2"));
    return (i) => columns.some((one) => one.text(i).toLowerCase().includes(word.toLowerCase()));
  });
  return { found: [...run.cost.keys()].filter((i) => tests.every((test) => test(i))), unknown };
}

function holds(value, sign, wanted) {
  if (value === null) return false;
  const [a, b] = Number.isFinite(Number(wanted)) && typeof value !== "string" ? [Number(value), Number(wanted)] : [shown(value), wanted];
  return { "<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b, "=": a === b, "==": a === b, "!=": a !== b }[sign];
}

function sorted(rows, column, down) {
  const order = (a, b) => {
    const [x, y] = [column.value(a), column.value(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    const found = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    return down ? -found : found;
  };
  return rows.sort((a, b) => order(a, b) || a - b);
}

function trialRow(run, columns, i) {
  const cells = columns.map((column) => element("td", { class: column.number ? "number" : column.long ? "text" : "name", dir: "auto" }, column.text(i)));
  const button = element("button", { type: "button", class: "copy", title: "copy the values of the configuration", onclick: () => copyText(values(run, i), button) }, "copy values");
  const class_ = i === run.named.answer ? "answer" : run.t.status[i] === "ok" ? null : "failed";
  return element("tr", { class: class_ }, ...cells, element("td", {}, button));
}

/** The values of a configuration; a line for each workload. What a build is told of them, `tuner export` writes. */
function values(run, i) {
  return run.workloads
    .map((_, place) =>
      run.tunables
        .filter((one) => one.place === place && one.values[one.index[i]] !== null)
        .map((one) => `${one.name}=${shown(one.values[one.index[i]])}`)
        .join(" "),
    )
    .join("\n");
}
