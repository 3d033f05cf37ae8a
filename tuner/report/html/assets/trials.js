// The table of all trials: sorted by a head, filtered by words and conditions, a page at a time.

const ON_A_PAGE = 50;
const CONDITION = /^(.+?)(<=|>=|!=|<|>|=)(.+)$/;

charts.trials = (run, box) => {
  const columns = trialColumns(run);
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
    const rows = sorted(filtered(run, columns, state.filter), columns[state.sort], state.down);
    const pages = Math.max(1, Math.ceil(rows.length / ON_A_PAGE));
    state.page = Math.min(Math.max(0, state.page), pages - 1);
    const from = state.page * ON_A_PAGE;
    const visible = rows.slice(from, from + ON_A_PAGE);
    back.disabled = state.page === 0;
    on.disabled = state.page >= pages - 1;
    count.textContent = rows.length ? `${from + 1} to ${from + visible.length} of ${rows.length.toLocaleString("en-US")}` : "none";
    heads.forEach((head, place) => head.setAttribute("aria-sort", place !== state.sort ? "none" : state.down ? "descending" : "ascending"));
    body.replaceChildren(...visible.map((i) => trialRow(run, columns, i)));
  }
  draw();
};

function trialColumns(run) {
  const { t } = run;
  const ranks = ranksOf(run);
  const some = (values) => values.some((value) => value !== null);
  const clocks = some(t.clock);
  const found = [
    { title: "rank", key: "rank", number: true, value: (i) => ranks[i], text: (i) => (ranks[i] === null ? "–" : String(ranks[i])) },
    { title: "trial", key: "trial", number: true, value: (i) => t.number[i], text: (i) => String(t.number[i]) },
    { title: "known for", key: "marks", number: false, value: (i) => marks(run, i).join(", "), text: (i) => [...marks(run, i), ...(run.contenders.includes(i) ? ["repeated"] : [])].join(", ") },
    { title: "time", key: "time", number: true, value: (i) => t.time[i], text: (i) => si(t.time[i], "s") },
  ];
  if (some(t.energy)) {
    found.push({ title: "energy", key: "energy", number: true, value: (i) => t.energy[i], text: (i) => withInterval(t.energy[i], interval(t.energyUnsure[i]), "J") });
    found.push({ title: "power", key: "power", number: true, value: (i) => t.power[i], text: (i) => si(t.power[i], "W") });
  }
  if (clocks) found.push({ title: "clock", key: "clock", number: true, value: (i) => t.clock[i], text: (i) => (t.clock[i] === null ? "as found" : `${t.clock[i]} MHz`) });
  if (some(t.limit)) found.push({ title: "power limit", key: "limit", number: true, value: (i) => t.limit[i], text: (i) => (t.limit[i] === null ? "as found" : `${t.limit[i]} W`) });
  for (const one of run.tunables.filter((each) => each.place >= 0 && each.values.length > 1)) {
    const value = (i) => one.values[one.index[i]];
    found.push({ title: one.name, of: run.workloads.length > 1 ? one.workload : null, key: one.name, number: false, value, text: (i) => shown(value(i)) });
  }
  found.push({ title: "status and flags", key: "status", number: false, long: true, value: (i) => t.status[i], text: (i) => [t.status[i] === "ok" ? "" : `${t.status[i]}: ${t.detail[i]}`, t.flags[i]].filter(Boolean).join("; ") || "ok" });
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

function filtered(run, columns, text) {
  const tests = text.split(/\s+/).filter(Boolean).map((word) => {
    const [, name, sign, wanted] = CONDITION.exec(word) ?? [];
    const column = columns.find((one) => one.key.toLowerCase() === name?.toLowerCase());
    if (column) return (i) => holds(column.value(i), sign, wanted);
    return (i) => columns.some((one) => one.text(i).toLowerCase().includes(word.toLowerCase()));
  });
  return [...run.cost.keys()].filter((i) => tests.every((test) => test(i)));
}

function holds(value, sign, wanted) {
  const [a, b] = Number.isFinite(Number(wanted)) && typeof value !== "string" ? [value === null ? NaN : Number(value), Number(wanted)] : [shown(value), wanted];
  return { "<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b, "=": a === b, "!=": a !== b }[sign];
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
  const button = element("button", { type: "button", class: "copy", title: "copy the configuration as options of a compiler", onclick: () => copyText(flags(run, i), button) }, "copy flags");
  const class_ = i === run.named.answer ? "answer" : run.t.status[i] === "ok" ? null : "failed";
  return element("tr", { class: class_ }, ...cells, element("td", {}, button));
}

/** A configuration as options of a compiler, quoted for a shell; a line for each workload. */
function flags(run, i) {
  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`);
  return run.workloads
    .map((_, place) =>
      run.tunables
        .filter((one) => one.place === place && one.values[one.index[i]] !== null)
        .map((one) => quoted(`-D${one.name}=${shown(one.values[one.index[i]])}`))
        .join(" "),
    )
    .join("\n");
}
