// Draws everything when the page is there, and again when its colours or its paper change.

const page = document.documentElement;

async function drawAll() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const runs = await Promise.all(data.runs.map(opened));
  let failed = 0;
  for (const box of document.querySelectorAll("[data-chart]")) {
    const run = runs[Number(box.closest("[data-run]")?.dataset.run ?? 0)];
    try {
      charts[box.dataset.chart](run, box, data);
    } catch (error) {
      failed += 1;
      say(box, `This chart could not be drawn (${error.message}).`);
    }
  }
  page.dataset.failed = failed;
  page.dataset.ready = document.querySelectorAll("[data-chart]").length;
}

function withButtons() {
  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", () => copyText(button.parentElement.querySelector("code").textContent, button));
  }
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", redrawAll);
  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const now = page.dataset.theme ?? (dark.matches ? "dark" : "light");
    page.dataset.theme = now === "dark" ? "light" : "dark";
    redrawAll();
  });
  addEventListener("beforeprint", () => {
    page.classList.add("printing");
    redrawAll();
  });
  addEventListener("afterprint", () => {
    page.classList.remove("printing");
    redrawAll();
  });
}

withButtons();
drawAll();
