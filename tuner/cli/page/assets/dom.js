// Elements made of text: nothing that the daemon says is ever read as HTML.

export const byId = (id) => document.getElementById(id);

/** An element with text, class and further attributes; null text is none. */
export function element(tag, text = null, classes = "", attributes = {}) {
  const made = document.createElement(tag);
  if (text !== null) made.textContent = text;
  if (classes) made.className = classes;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** A cell of a table that stacks on narrow screens, where its label stands beside it. */
export function cell(label, content, classes = "") {
  const made = element("td", null, classes, { "data-label": label });
  made.append(...[content].flat().filter((part) => part !== null && part !== ""));
  return made;
}

/** Replace what an element shows, where that differs; focus and selection stay otherwise. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** Call a function soon, and once, however often it is asked for. */
export function debounced(call, milliseconds) {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    setTimeout(() => {
      due = false;
      call();
    }, milliseconds);
  };
}

/** The colours of the style sheet, which follow the system's theme. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
