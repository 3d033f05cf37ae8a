"""Counts how the source tree stands: modules, rooms, arrows between rooms, forms, and ways of a value.

A room is a folder of ``tuner/``, ``power/`` or ``policies/``. An arrow runs from a room to one that it
imports; what ``tuner.model.registry`` loads by name draws none. A floor is the longest way down from a room.
An arrow up is an import of the package itself, whose face imports the rooms.

The way of a parameter: the calls of a function that pass it on, or a name assigned from it, are followed in
order of the text, into functions, methods of one name in the project, and constructors. A stay is a change
of file on that way; a function is entered once for each of its parameters.

    python benchmarks/structure.py --out benchmarks/results/structure.json
    python benchmarks/structure.py --root ../other-checkout
"""

import argparse
import ast
import json
import os
import re
import statistics
import subprocess
import sys
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


LOOSE = {
    f"{kind}[str, {value}]" for kind in ("Mapping", "MutableMapping", "dict") for value in ("Any", "object")
}
CLAUSE = re.compile(r"(What|How|Who|Whether|Why|Where)\b")
STARTS = 7  # of ``tuner --help``, whose median counts


WAYS = {
    "the request of tune()": (
        ("tuner/search/tuning.py", "tune", "request"),
        ("tuner/search/session.py", "tune", "request"),
    ),
    "a daemon question asked first": (("tuner/daemon/service.py", "best", "question"),),
}
"""What is followed, and where it may begin: the first that the checkout has."""


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


def trees(root: Path) -> dict[Path, ast.Module]:
    """File -> syntax tree of every module."""
    return {path: ast.parse(path.read_text()) for path in modules(root).values()}


def forms(parsed: dict[Path, ast.Module]) -> dict[str, int]:
    """Protocols, dataclasses, functions of one call, and annotations that say nothing of a mapping's keys."""
    found = dict.fromkeys(
        ("Protocols", "dataclasses", "functions of one call", "Mapping[str, Any] and the like"), 0
    )
    for tree in parsed.values():
        aliases = {
            ast.unparse(node.targets[0])
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.value) in LOOSE
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found["Protocols"] += any(named(base) == "Protocol" for base in node.bases)
                found["dataclasses"] += any(named(mark) == "dataclass" for mark in node.decorator_list)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found["functions of one call"] += is_one_call(node)
                for part in (
                    node.returns,
                    *(each.annotation for each in ast.walk(node.args) if isinstance(each, ast.arg)),
                ):
                    found["Mapping[str, Any] and the like"] += loose(part, aliases)
            elif isinstance(node, ast.AnnAssign):
                found["Mapping[str, Any] and the like"] += loose(node.annotation, aliases)
    return found


def named(node: ast.expr) -> str:
    """The last part of the name of a base or decorator, its arguments left out."""
    return re.split(r"[\[(]", ast.unparse(node))[0].rpartition(".")[2]


def is_one_call(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """True if a call is all that a function does."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return | ast.Expr) else None
    return isinstance(value.value if isinstance(value, ast.Await) else value, ast.Call)


def loose(annotation: ast.expr | None, aliases: set[str]) -> int:
    """Mappings from text to anything in an annotation, by themselves or by an alias of the file."""
    nodes = ast.walk(annotation) if annotation is not None else ()
    return sum(
        ast.unparse(node) in LOOSE | aliases for node in nodes if isinstance(node, ast.Subscript | ast.Name)
    )


def clauses(parsed: dict[Path, ast.Module]) -> int:
    """Docstrings, those below constants too, that begin with a question word."""
    count = 0
    for tree in parsed.values():
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            for before, one in zip([None, *body], body, strict=False) if isinstance(body, list) else ():
                text = (
                    one.value.value
                    if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
                    else None
                )
                documents = before is None or isinstance(before, ast.Assign | ast.AnnAssign)
                count += documents and isinstance(text, str) and CLAUSE.match(text) is not None
    return count


def doubles(files: list[Path]) -> tuple[int, int]:
    """File names that occur in several rooms, and names that differ from another in a plural only."""
    where = defaultdict(set)
    for path in files:
        where[path.stem].add(path.parent)
    return sum(len(rooms) > 1 for rooms in where.values()), sum(f"{name}s" in where for name in where)


Entry = tuple[Path, str, ast.FunctionDef | ast.AsyncFunctionDef]
"""The file of a function, the class that it is a method of, and its tree."""


class Ways:
    """The ways of parameters through the functions of a checkout."""

    def __init__(self, parsed: dict[Path, ast.Module]) -> None:
        self._functions: dict[str, list[Entry]] = defaultdict(list)
        self._imported: dict[tuple[Path, str], str] = {}
        for path, tree in parsed.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom):
                    for alias in node.names:
                        place = (node.module or "").replace(".", "/")
                        self._imported[path, alias.asname or alias.name] = f"{place}|{alias.name}"
            for node in ast.walk(tree):
                for inner in getattr(node, "body", ()) if isinstance(node, ast.Module | ast.ClassDef) else ():
                    if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                        owner = node.name if isinstance(node, ast.ClassDef) else ""
                        name = owner if inner.name == "__init__" else inner.name
                        self._functions[name].append((path, owner, inner))

    def has(self, file: Path, function: str) -> bool:
        """True if the file defines the function."""
        return any(entry[0] == file for entry in self._functions[function])

    def follow(self, file: Path, function: str, parameter: str) -> tuple[int, int]:
        """Stays and files of the way of a parameter."""
        start = next(entry for entry in self._functions[function] if entry[0] == file)
        stays: list[Path] = []
        self._enter(start, parameter, stays, set())
        return len(stays), len(set(stays))

    def _enter(
        self, entry: Entry, parameter: str, stays: list[Path], seen: set[tuple[Path, int, str]]
    ) -> None:
        path, _, node = entry
        if (path, node.lineno, parameter) in seen:
            return
        seen.add((path, node.lineno, parameter))
        if stays[-1:] != [path]:
            stays.append(path)
        names = {parameter}
        for inner in sorted(
            ast.walk(node), key=lambda one: (getattr(one, "lineno", 0), getattr(one, "col_offset", 0))
        ):
            for target, value in bindings(inner):
                if is_of(value, names):
                    names |= names_in(target)
            if isinstance(inner, ast.Call):
                for target, other in self._passed(path, inner, names):
                    self._enter(target, other, stays, seen)
                    if stays[-1] != path:
                        stays.append(path)

    def _called(self, path: Path, function: ast.expr) -> Entry | None:
        """The function that a call names: imported, of the same file, or the only one of its name."""
        if isinstance(function, ast.Attribute):
            entries = self._functions.get(function.attr, [])
            own = isinstance(function.value, ast.Name) and function.value.id == "self"
            entries = [entry for entry in entries if entry[0] == path] if own else entries
        else:
            name = getattr(function, "id", "")
            place, _, original = self._imported.get((path, name), f"|{name}").partition("|")
            entries = [
                entry
                for entry in self._functions.get(original, [])
                if entry[0].with_suffix("").as_posix().endswith(place.removeprefix("tuner/"))
                and (place or entry[0] == path)
            ]
        return entries[0] if len(entries) == 1 else None

    def _passed(self, path: Path, call: ast.Call, names: set[str]) -> Iterator[tuple[Entry, str]]:
        entry = self._called(path, call.func)
        if entry is None:
            return
        arguments = entry[2].args
        declared = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
        declared = declared[1:] if entry[1] and declared[:1] in (["self"], ["cls"]) else declared
        for position, value in enumerate(call.args):
            if is_passed(value, names) and position < len(declared):
                yield entry, declared[position]
        for keyword in call.keywords:
            if keyword.arg and is_passed(keyword.value, names):
                yield entry, keyword.arg


def bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets that a statement, a loop or a comprehension binds, with the values that they come from."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield node.target, node.iter
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, node.context_expr


def names_in(node: ast.expr) -> set[str]:
    """Plain names in an expression; of ``self.x`` there is none, as an object is no way of its parts."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} - {"self", "cls"}


def is_of(value: ast.expr, names: set[str]) -> bool:
    """True if a value is one of the names, an attribute of it, or what a call makes of one."""
    if isinstance(value, ast.Await):
        value = value.value
    if not isinstance(value, ast.Call):
        return is_passed(value, names)
    return any(is_passed(one, names) for one in (*value.args, *(each.value for each in value.keywords)))


def is_passed(value: ast.expr, names: set[str]) -> bool:
    """True if an argument is one of the names, or an attribute of it."""
    while isinstance(value, ast.Attribute | ast.Starred):
        value = value.value
    return isinstance(value, ast.Name) and value.id in names


def ways(root: Path, parsed: dict[Path, ast.Module]) -> dict[str, str]:
    """Stays and files of each way, of those functions that the checkout has."""
    followed = Ways(parsed)
    found = {}
    for title, starts in WAYS.items():
        for file, function, parameter in starts:
            if followed.has(root / file, function):
                stays, files = followed.follow(root / file, function, parameter)
                found[f"{title}: stays, files"] = f"{stays}, {files}"
    return found


def help_cpu_s(root: Path) -> float:
    """User CPU seconds of ``tuner --help`` in the environment of the checkout, the median of several."""
    took = []
    for _ in range(STARTS):
        before = os.times().children_user
        python = root / ".venv/bin/python"
        command = [str(python) if python.exists() else sys.executable, "-m", "tuner", "--help"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=root)
        took.append(os.times().children_user - before)
    return statistics.median(took)


def counts(root: Path) -> dict[str, object]:
    """The figures of a checkout."""
    files = list(modules(root).values())
    sources = [path for path in files if path.name != "__init__.py"]
    pairs = arrows(root)
    height, circle = floors(pairs)
    classes = class_names(root)
    parsed = trees(root)
    several, plurals = doubles(sources)
    known = modules(root)
    return {
        "modules": len(sources),
        "loose modules in tuner/": sum(path.parent == root / "tuner" for path in sources),
        "files in tuner/daemon, __init__.py included": len(list((root / "tuner/daemon").rglob("*.py"))),
        "rooms": len({name for pair in pairs for name in pair}),
        "floors": height,
        "arrows between rooms": len(pairs),
        "arrows up": sum("tuner" in set(imports(name, path, known)) for name, path in known.items()),
        "circle of rooms": circle,
        "lines of tuner, power, policies": sum(len(path.read_text().splitlines()) for path in files),
        **ways(root, parsed),
        **forms(parsed),
        "docstrings that begin with a question word": clauses(parsed),
        "file names in several rooms": several,
        "file names that differ in a plural only": plurals,
        "tuner --help, user CPU in ms": round(1e3 * help_cpu_s(root)),
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
        shown = f"{len(value)}: {', '.join(value)}" if isinstance(value, list) else f"{value}"
        print(f"{name:44} {shown}")
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
