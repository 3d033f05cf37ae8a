"""Every stored result with what made it: the table of docs/results.md, which the site gets when it is built.

    python benchmarks/show_results.py

A row per script: what it does, what it has stored with device and date, and the pages that quote it.
"""

import argparse
import ast
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
_SCRIPT = re.compile(r"benchmarks/(?:kernels/)?(\w+)\.py")
_HEAD = ("what", "script", "results", "quoted in")
_NO_SCRIPT = "Runs, calibrations and traces of `tuner` itself."
_UNNAMED = {"analytical-phi-h200": "analytical_phi"}  # results that do not name their script
_ONCE = "Measured once; the script is in git history at commit 6844181e."


class Origin(NamedTuple):
    """What a result tells of how it came about; a text that it does not tell is empty."""

    command: str
    device: str
    date: str


def table() -> str:
    """A row for each script and what it has stored, in Markdown, linked as from a page of ``docs``."""
    made: dict[str, list[Path]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        made.setdefault(script_of(path, _origin(path).command), []).append(path)
    rows = sorted((_row(script, paths) for script, paths in made.items()), key=lambda row: row[1])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (_HEAD, ("---",) * len(_HEAD), *rows))


def _row(script: str, paths: list[Path]) -> tuple[str, ...]:
    quoted = sorted({page for path in paths for page in pages_that_quote(path.stem, script)})
    return (
        _about(script),
        _named(script),
        "<br>".join(_linked(path) for path in paths),
        ", ".join(f"[{page}]({page}.md)" for page in quoted),
    )


def _about(script: str) -> str:
    if not script:
        return _NO_SCRIPT
    return first_line(script) if script in _scripts() else _ONCE


def _named(script: str) -> str:
    if script not in _scripts():
        return f"`{script}.py`" if script else ""
    return f"[`{script}.py`](../{_path(script)})"


def _linked(path: Path) -> str:
    origin = _origin(path)
    details = ", ".join(filter(None, (origin.device, origin.date)))
    return f"[{path.stem}](../benchmarks/results/{path.name})" + (f" ({details})" if details else "")


@cache
def _origin(path: Path) -> Origin:
    return origin_of(json.loads(path.read_text("utf-8")))


def origin_of(document: Any) -> Origin:
    """Command, GPU and date of a result, where it has them."""
    told = [
        found for found in _mappings(document) if "date" in found or "gpus" in found or "command" in found
    ]
    command = next((str(one["command"]) for one in told if one.get("command")), "")
    date = next((str(one["date"])[:10] for one in told if one.get("date")), "")
    return Origin(command, _device(document, told), date)


def _mappings(document: Any) -> Iterator[Mapping[str, Any]]:
    """The result and what it has of its origin: at its top, or per part or run."""
    if isinstance(document, list):
        for one in document:
            yield from _mappings(one)
    elif isinstance(document, dict):
        yield document
        yield from _mappings(document.get("provenance") or [])
        parts = document.get("runs")
        yield from _mappings(list(parts.values()) if isinstance(parts, dict) else parts)


def _device(document: Any, told: list[Mapping[str, Any]]) -> str:
    names = {gpu["name"] for one in told for gpu in one.get("gpus") or () if isinstance(gpu, dict)}
    names |= {str(one["gpu"]) for one in told if isinstance(one.get("gpu"), str)}
    device = document.get("device") if isinstance(document, dict) else None
    if isinstance(device, dict):
        names.add(str(device.get("name", "")))
    modelled = isinstance(document, dict) and document.get("modelled") is True
    recorded = any("replay:" in str(one.get("command")) for one in told)
    words = [", ".join(sorted(filter(None, names))), "modelled" * modelled, "recorded" * recorded]
    return ", ".join(filter(None, words))


def script_of(path: Path, command: str) -> str:
    """The script that made a result, be it there or not: of its command, else one that names the file."""
    named = _SCRIPT.search(command)
    if named or path.stem in _UNNAMED:
        return named[1] if named else _UNNAMED[path.stem]
    naming = (name for name in _scripts() if f"results/{path.name}" in _text(name))
    return next(naming, next((name for name in _scripts() if path.stem.startswith(f"{name}-")), ""))


@cache
def _scripts() -> dict[str, Path]:
    scripts = sorted((ROOT / "benchmarks").rglob("*.py"), key=lambda path: path.name)
    return {one.stem: one for one in scripts if one != Path(__file__).resolve()}


def _path(script: str) -> Path:
    return _scripts()[script].relative_to(ROOT)


@cache
def _text(script: str) -> str:
    return _scripts()[script].read_text("utf-8")


def first_line(script: str) -> str:
    """The first line of a script's docstring."""
    text = ast.get_docstring(ast.parse(_text(script))) or ""
    return text.partition("\n")[0].replace("``", "`").replace("|", "\\|")


def pages_that_quote(result: str, script: str) -> list[str]:
    """Pages of the documentation that name a result, or else the script that made it."""
    by_result = [page for page, text in _pages().items() if f"/{result}.json" in text]
    if by_result or script not in _scripts():
        return by_result
    return [page for page, text in _pages().items() if str(_path(script)) in text]


@cache
def _pages() -> dict[str, str]:
    docs = ROOT / "docs"
    pages = {
        str(one.relative_to(docs).with_suffix("")): one.read_text("utf-8")
        for one in sorted(docs.rglob("*.md"))
    }
    return {name: text for name, text in pages.items() if name != "results"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.parse_args()
    print(table())


if __name__ == "__main__":
    main()
