"""Counts how the source tree stands: modules, rooms, arrows between rooms, and what class names say.

A room is a folder of ``tuner/``, ``power/`` or ``policies/``. An arrow runs from a room to one that it
imports; what ``tuner.registry`` loads by name draws none. A floor is the longest way down from a room.

    python benchmarks/structure.py --out benchmarks/results/structure.json
    python benchmarks/structure.py --root ../other-checkout
"""

import argparse
import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FOLDERS = ("tuner", "power", "policies")
PARTICIPLE = re.compile(r"_?[A-Z][a-z]+ed")
IRREGULAR = {
    *("Begun", "Bound", "Built", "Cut", "Done", "Drawn", "Found", "Given", "Gone", "Grown", "Heard", "Held"),
    *("Kept", "Known", "Left", "Lost", "Made", "Met", "Put", "Read", "Run", "Seen", "Sent", "Set", "Shown"),
    *("Spent", "Taken", "Told", "Understood"),
}


def modules(root: Path) -> dict[str, Path]:
    """Dotted name -> file of every module, packages' own files included."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join(parts if folder == "tuner" else ("tuner", *parts))] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules of the project that a file imports anywhere."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in known:
                    yield inner
                elif base in known:
                    yield base


def room(name: str, depth: int) -> str:
    """The room of a module: its first ``depth`` parts below ``tuner``."""
    return ".".join(name.split(".")[: depth + 1])


def arrows(root: Path) -> set[tuple[str, str]]:
    """Pairs of rooms of which the first imports the second."""
    known = modules(root)
    pairs = {
        (room(name, 1), room(target, 1))
        for name, path in known.items()
        for target in imports(name, path, known)
    }
    return {(one, other) for one, other in pairs if one != other and "tuner" not in (one, other)}


def floors(pairs: set[tuple[str, str]]) -> tuple[int, list[str]]:
    """How many floors the rooms need, and the rooms of a circle where there is one."""
    below = defaultdict(set)
    for one, other in pairs:
        below[one].add(other)
    on_trail: list[str] = []
    circle: list[str] = []

    @cache
    def height(name: str) -> int:
        if name in on_trail:
            circle[:] = [*on_trail[on_trail.index(name) :], name]
            return 0
        on_trail.append(name)
        tallest = max((height(other) for other in sorted(below[name])), default=0)
        on_trail.pop()
        return 1 + tallest

    return max(map(height, sorted({one for one, _ in pairs})), default=0), circle


def class_names(root: Path) -> dict[str, list[str]]:
    """Class name -> files that define it."""
    found = defaultdict(list)
    for path in modules(root).values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(root)))
    return found


def counts(root: Path) -> dict[str, object]:
    """The figures of a checkout."""
    files = list(modules(root).values())
    sources = [path for path in files if path.name != "__init__.py"]
    pairs = arrows(root)
    height, circle = floors(pairs)
    classes = class_names(root)
    return {
        "modules": len(sources),
        "loose modules in tuner/": sum(path.parent == root / "tuner" for path in sources),
        "files in tuner/daemon, __init__.py included": len(list((root / "tuner/daemon").rglob("*.py"))),
        "rooms": len({name for pair in pairs for name in pair}),
        "floors": height,
        "arrows between rooms": len(pairs),
        "circle of rooms": circle,
        "lines of tuner, power, policies": sum(len(path.read_text().splitlines()) for path in files),
        "classes": sum(map(len, classes.values())),
        "class names with several meanings": sorted(
            name for name, where in classes.items() if len(where) > 1
        ),
        "bare participles as classes": sorted(
            name for name in classes if PARTICIPLE.fullmatch(name) or name.lstrip("_") in IRREGULAR
        ),
    }


def main() -> None:
    """Print the figures, and write them where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the checkout"
    )
    parser.add_argument("--out", type=Path, help="write JSON there")
    options = parser.parse_args()
    found = counts(options.root.resolve())
    for name, value in found.items():
        shown = f"{len(value)}: {', '.join(value)}" if isinstance(value, list) else f"{value:,}"
        print(f"{name:44} {shown}")
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
