// What all charts have in common: colours of the page, axes, drawing again when the page changes.

const charts = {}; // kind -> function of (run, box, page data) that draws it
const drawn = []; // charts of this page

/** Colours as the style has them now. */
function colours() {
  const style = getComputedStyle(document.body);
  const names = ["text", "muted", "line", "panel", "blue", "green", "amber", "red", "violet", "teal", "pale", "cold", "warm", "band"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** Draw a chart in a box; the function makes its options from the colours, and is called again when they change. */
function show(box, options, many = false) {
  const chart = echarts.init(box, null, { renderer: many ? "canvas" : "svg" });
  const redraw = () => chart.setOption({ ...common(), ...options(colours()) }, { notMerge: true });
  drawn.push({ chart, redraw });
  redraw();
  let width = box.clientWidth;
  new ResizeObserver(() => {
    if (box.clientWidth === width) return; // as when it is first observed
    width = box.clientWidth;
    chart.resize();
    redraw();
  }).observe(box);
  return { chart, redraw };
}

function common() {
  const c = colours();
  return {
    animation: false,
    backgroundColor: "transparent",
    textStyle: { fontFamily: "system-ui, sans-serif", color: c.text },
  };
}

function redrawAll() {
  for (const { chart, redraw } of drawn) {
    chart.resize();
    redraw();
  }
}

/** A tooltip whose content is made of elements. */
function tooltip(c, formatter, more = {}) {
  return {
    confine: true,
    backgroundColor: c.panel,
    borderColor: c.line,
    textStyle: { color: c.text, fontSize: 12 },
    extraCssText: "max-width: 28rem; white-space: normal; box-shadow: none;",
    formatter,
    ...more,
  };
}

/** An axis of numbers with its name beside it. */
function axis(c, name, gap, more = {}) {
  return {
    name,
    nameLocation: "middle",
    nameGap: gap,
    nameTextStyle: { color: c.muted },
    scale: true,
    axisLabel: { color: c.muted, hideOverlap: true },
    axisLine: { lineStyle: { color: c.line } },
    splitLine: { lineStyle: { color: c.line } },
    ...more,
  };
}

const place = (more = {}) => ({ outerBoundsMode: "none", left: 66, right: 24, top: 34, bottom: 46, ...more });
const aside = (box, most) => Math.min(most, Math.round(0.42 * box.clientWidth)); // room for names at the left
const below = (box) => (box.clientWidth < 520 ? 58 : 34); // a legend that may take two lines
const legend = (c, more = {}) => ({ top: 0, left: 0, type: "plain", itemHeight: 10, textStyle: { color: c.text, fontSize: 12 }, inactiveColor: c.muted, ...more });

/** Lines of 95 % intervals: rows of x, y, half of x, half of y. */
function whiskers(rows, colour, more = {}) {
  const bar = (from, to, style) => ({ type: "line", shape: { x1: from[0], y1: from[1], x2: to[0], y2: to[1] }, style });
  return {
    type: "custom",
    silent: true,
    clip: true,
    z: 1,
    data: rows,
    encode: { x: 0, y: 1 },
    itemStyle: { color: colour },
    renderItem: (_, api) => {
      const [x, y, dx, dy] = [0, 1, 2, 3].map((dimension) => api.value(dimension));
      const style = { stroke: colour, lineWidth: 1, opacity: rows.length > 100 ? 0.3 : 0.7 };
      const children = [];
      if (dx > 0) children.push(bar(api.coord([x - dx, y]), api.coord([x + dx, y]), style));
      if (dy > 0) children.push(bar(api.coord([x, y - dy]), api.coord([x, y + dy]), style));
      return { type: "group", children };
    },
    ...more,
  };
}

/** The room for controls above a chart. */
const controls = (box) => box.closest(".panel").querySelector(".controls");

function say(box, sentence) {
  box.classList.add("empty");
  box.replaceChildren(element("p", { class: "sub" }, sentence));
}
