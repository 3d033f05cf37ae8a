"""Write the report and its pictures in docs anew, from a recording that comes with the package.

    python benchmarks/shipped_report.py [--browser /usr/bin/chromium]

Without a browser the pictures stay as they are.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "report-h200.html"
RUN = (
    "run streamcluster:N=262144,DIM=256,K=10 particle-filter:N=8388608,H=1024,W=1024 lud:N=1536"
    " hotspot:ROWS=6144,COLUMNS=6144 --device replay:h200-applications --objective time --policy exhaustive"
)
PICTURES = {"report-answer.png": ("bar", 0, 1040), "report-search.png": ("convergence", -6, 470)}
"""Begin and height in CSS pixels: above a panel, or the page's head."""
WIDTH = 1180


def tuner(*words: str) -> None:
    """Run the command of this installation."""
    command = (sys.executable, "-c", "from tuner.cli.main import main; main()", *words)
    subprocess.run(command, check=True)


def take_pictures(browser: str) -> None:
    """Parts of the page as a browser shows them."""
    from PIL import Image  # noqa: PLC0415 - the page is written without
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - same

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser)
        shown = chromium.new_page(viewport={"width": WIDTH, "height": 900})
        shown.goto(PAGE.as_uri())
        shown.wait_for_selector("html[data-ready]")
        for name, (panel, above, height) in PICTURES.items():
            box = shown.locator(".bar" if panel == "bar" else f"[data-panel={panel}]").bounding_box()
            if box is None:
                raise RuntimeError(f"{PAGE}: no panel {panel}")
            clip = {"x": 0, "y": max(0, box["y"] + above), "width": WIDTH, "height": height}
            shown.screenshot(path=DOCS / name, clip=clip, full_page=True)
            Image.open(DOCS / name).quantize(128).save(DOCS / name, optimize=True)
        chromium.close()


def main() -> None:
    """Write the page, and take its pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--browser", default=shutil.which("chromium"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = ("--database", str(Path(folder) / "runs.db"))
        tuner(*shlex.split(RUN), *database)
        tuner("report", *database, "--output", str(PAGE))
    if asked.browser:
        take_pictures(asked.browser)


if __name__ == "__main__":
    main()
