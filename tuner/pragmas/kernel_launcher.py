"""Kernel Launcher's pragmas, ``#pragma kernel tune(...) block_size(...) ...``, as the same statements.

A clause means what it means there: ``tune`` a tunable whose first value is the default, ``set`` a derived
name, ``problem_size`` over ``grid_divisor`` (else the block) the grid. Its sizes are parameters of the
kernel: each is a size of the same name, of any value.
"""

import re
from typing import Any

from tuner.pragmas.clauses import Value, clauses, one_value, split_list
from tuner.pragmas.directives import Directive, PragmaSource
from tuner.pragmas.statements import LaunchStatement, Statements, kernel_below
from tuner.pragmas.tunables import PragmaTunable

_LARGEST = 2**31 - 1
_KEYS = (
    *("tune", "set", "problem_size", "block_size", "grid_size", "grid_divisor", "buffers", "buffer"),
    *("tuning_key", "restriction", "restrictions", "default"),
)
_FUNCTIONS = (("div_ceil(", "ceil_div("), ("&&", " and "), ("||", " or "))
_BUFFER = re.compile(r"([A-Za-z_]\w*)\s*\[(.+)\]", re.DOTALL)
_EQUATION = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*(.*)", re.DOTALL)


def read_kernel_launcher(source: PragmaSource, statements: Statements, tunables: list[PragmaTunable]) -> None:
    """Add what Kernel Launcher's pragmas of a source say, if it has any.

    Raises:
        KernelFileError: a clause is unknown or has another form.
    """
    directives = [one for one in source.directives if one.family == "kernel"]
    if not directives:
        return
    said: dict[str, list[str]] = {}
    last = directives[0]
    try:
        for last in directives:
            _read(last, said, statements, tunables)
        function = kernel_below(source, last)
        _add_launch(last, LaunchStatement(last, function, {}), said, statements)
    except ValueError as e:
        raise source.error(last, e) from e


def _read(
    directive: Directive,
    said: dict[str, list[str]],
    statements: Statements,
    tunables: list[PragmaTunable],
) -> None:
    for key, inside in clauses(directive.text):
        if key not in _KEYS:
            raise ValueError(f"unknown clause {key}; known here: {', '.join(_KEYS)}")
        if key == "tune":
            tunables.append(_tunable(directive, inside))
        elif key == "default":
            tunables.append(_with_default(tunables.pop() if tunables else None, inside))
        elif key == "set":
            match = _EQUATION.fullmatch(inside)
            if match is None:
                raise ValueError("write set(NAME = EXPRESSION)")
            statements.derived[match[1]] = _expression(match[2])
        elif key in ("restriction", "restrictions"):
            statements.rules += [_expression(one) for one in split_list(inside)]
        else:
            said.setdefault(key.replace("buffers", "buffer"), []).extend(map(_expression, split_list(inside)))


def _tunable(directive: Directive, inside: str) -> PragmaTunable:
    match = _EQUATION.fullmatch(inside)
    if match is None:
        raise ValueError("write tune(NAME = VALUE, VALUE)")
    values: list[Value | str] = []
    for part in split_list(match[2]):
        quoted = len(part) > 1 and part[0] == part[-1] == '"'
        values.append(part[1:-1] if quoted else one_value(part))
    if not values:
        raise ValueError(f"{match[1]} has no values")
    return PragmaTunable(directive, match[1], tuple(values), values[0], edits=())


def _with_default(tunable: PragmaTunable | None, inside: str) -> PragmaTunable:
    if tunable is None:
        raise ValueError("default(...) follows no tune(...)")
    value = one_value(inside)
    if value not in tunable.values:
        raise ValueError(f"{inside} is none of the values of {tunable.name}")
    return PragmaTunable(tunable.directive, tunable.name, tunable.values, value)


def _expression(text: str) -> str:
    for theirs, ours in _FUNCTIONS:
        text = text.replace(theirs, ours)
    return re.sub(r"!(?!=)", "not ", text).strip()


def _add_launch(
    directive: Directive, launch: LaunchStatement, said: dict[str, list[str]], statements: Statements
) -> None:
    if "problem_size" not in said and "grid_size" not in said:
        raise ValueError("has neither problem_size(...) nor grid_size(...)")
    if "block_size" not in said:
        raise ValueError("has no block_size(...)")
    block = said["block_size"]
    divisors = said.get("grid_divisor", block)
    extents = said.get("problem_size", [])
    padded = [*divisors, *["1"] * (len(extents) - len(divisors))]
    grid = said.get("grid_size") or [
        f"ceil_div({extent}, {divisor})" for extent, divisor in zip(extents, padded, strict=False)
    ]
    keys: dict[str, Any] = {
        "grid": grid if len(grid) > 1 else grid[0],
        "block": block if len(block) > 1 else block[0],
    }
    launch.keys.update(keys)
    statements.launches.append(launch)
    used = set(re.findall(r"[A-Za-z_]\w*", " ".join([*extents, *grid, *said.get("buffer", [])])))
    for parameter in launch.function.parameters:
        if not parameter.pointer and parameter.name in used:
            statements.problem["sizes"].setdefault(parameter.name, {"from": 1, "to": _LARGEST})
    roles = {one.name: "in" if one.const else "inout" for one in launch.function.parameters if one.pointer}
    for text in said.get("buffer", []):
        match = _BUFFER.fullmatch(text)
        if match is None or match[1] not in roles:
            raise ValueError(f"{text!r} is no array of the kernel with its length, as A[n]")
        statements.arguments.setdefault(match[1], f"{roles[match[1]]} [{match[2]}]")
        statements.lines[f"[arguments] {match[1]}"] = directive.line
