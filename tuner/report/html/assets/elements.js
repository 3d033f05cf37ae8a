// Elements of the page. Texts of runs only ever become text nodes.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

/** A choice among named things; `chosen` is called with the place of the one that is taken. */
function choice(label, names, chosen, first = 0) {
  const options = names.map((name, place) => element("option", { value: place }, name));
  const select = element("select", { onchange: () => chosen(Number(select.value)) }, ...options);
  select.value = first;
  return element("label", {}, `${label} `, select);
}

/** Lines for a tooltip. */
function lines(...texts) {
  return element("div", { class: "tip", dir: "auto" }, ...texts.filter(Boolean).map((text) => element("div", {}, text)));
}

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    const range = document.createRange(); // a page that may not write to the clipboard selects the text
    range.selectNodeContents(button.parentElement.querySelector("code") ?? button.parentElement);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    button.textContent = "selected";
  }
}
