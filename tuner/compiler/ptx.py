"""PTX of one entry as NVRTC wrote it: the bounds that its source sets on launches, and its parameters.

The text is that of the compiler, macros and templates resolved, so that nothing of the source is guessed.
NVIDIA's "Parallel Thread Execution ISA" describes it.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

_FUNCTION = re.compile(
    r"^(?:\.(?:visible|weak|extern)\s+)*\.(?:entry\s+|func\s*(?:\.\w+\s*)*(?:\([^)]*\)\s*)?)([\w$]+)",
    re.MULTILINE,
)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_BEGINNING = re.compile(r"[{;]")
_BRACE = re.compile(r"[{}]")
_WORD = re.compile(r"[\w$]+")
_COUNT = re.compile(r"\[(\d+)\]")
_DYNAMIC = re.compile(r"^\.extern\s+\.shared\b[^;]*?([\w$]+)\[\]\s*;", re.MULTILINE)
_VARIABLE = re.compile(
    r"^[^\S\n]*(?:\.\w+\s+)*\.(?:const|global)\s[^;={]*?([\w$]+)(?:\[(\d+)\])?\s*[;=]", re.MULTILINE
)
_TYPE = re.compile(r"\.([busf])(\d+)\b")
_GRID_WORKSPACE = re.compile(
    r"%envreg[12]\b"
)  # of cooperative launches; what a barrier of the grid counts in


class LaunchFacts(NamedTuple):
    """Launch requirements of compiled code.

    Attributes:
        parameters: (``f`` of floating-point numbers, ``u`` of integers and addresses, ``b`` of structs and
            halves; bytes) of each parameter.
        most_threads: of a block (``__launch_bounds__``); None where nothing is said.
        block: threads in x, y, z that it must have (``__block_size__``); None where nothing is said.
        cluster: blocks in x, y, z of its clusters (``__cluster_dims__``); None where nothing is said.
        counts_clusters: the grid of a launch would count clusters, not blocks.
        dynamic_shared: it uses ``extern __shared__`` memory.
        waits_for_grid: its blocks wait for all others of the grid.
        symbol_bytes: sizes of the variables that were asked for.
    """

    parameters: tuple[tuple[str, int], ...]
    most_threads: int | None = None
    block: tuple[int, ...] | None = None
    cluster: tuple[int, ...] | None = None
    counts_clusters: bool = False
    dynamic_shared: bool = False
    waits_for_grid: bool = False
    symbol_bytes: tuple[int, ...] = ()


def excerpt(ptx: str, entry: str, symbols: tuple[str, ...] = ()) -> str:
    """An entry with the functions it calls, its dynamic shared memory and some variables; empty if absent."""
    bodies = functions(ptx)
    if entry not in bodies:
        return ""
    names = [entry]
    for name in names:  # grows
        words = set(_WORD.findall(bodies[name]))
        names += [other for other in bodies if other in words and other not in names]
    body = "\n".join(bodies[name] for name in names)
    words = set(_WORD.findall(body))
    declared = [match[0] for match in _VARIABLE.finditer(ptx) if match[1] in symbols]
    declared += [match[0] for match in _DYNAMIC.finditer(ptx) if match[1] in words]
    return "\n".join([*declared, body, ""])


def facts_in(text: str, symbols: tuple[str, ...] = ()) -> LaunchFacts | None:
    """Return the launch requirements in an ``excerpt``; None if it is empty."""
    head = next((text[begin:brace] for _, begin, brace in _heads(text)), "")
    parameters, _, directives = head.partition(")")
    sizes = {
        variable[1]: _bytes(kind[2], variable[2])
        for variable in (_VARIABLE.finditer(text) if symbols else ())
        if (kind := _TYPE.search(variable[0])) is not None
    }
    most = _directive("maxntid", directives)
    return (
        LaunchFacts(
            tuple(_parameter(declaration) for declaration in parameters.split(".param")[1:]),
            None if most is None else math.prod(most),
            _directive("reqntid", directives),
            _directive("reqnctapercluster", directives),
            ".blocksareclusters" in directives,
            _DYNAMIC.search(text) is not None,
            _GRID_WORKSPACE.search(text) is not None,
            tuple(sizes.get(name, 0) for name in symbols),
        )
        if head
        else None
    )


def entries_in(ptx: str) -> list[str]:
    """Names of the functions that can be launched."""
    return _ENTRY.findall(ptx)


def variables_in(ptx: str) -> list[str]:
    """Names of the variables that the host can reach."""
    return [match[1] for match in _VARIABLE.finditer(ptx)]


def functions(ptx: str) -> dict[str, str]:
    """Name and text of the functions that have a body."""
    bodies: dict[str, str] = {}
    for name, begin, beginning in _heads(ptx):
        depth = 0
        for brace in _BRACE.finditer(ptx, beginning):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                bodies[name] = ptx[begin : brace.end()]
                break
    return bodies


def _heads(ptx: str) -> Iterator[tuple[str, int, int]]:
    """Names of the functions that have a body, where their text begins, and where their body does."""
    for match in _FUNCTION.finditer(ptx):
        beginning = _BEGINNING.search(ptx, match.end())
        if beginning is not None and beginning[0] == "{":  # else declared only
            yield match[1], match.start(), beginning.start()


def _parameter(declaration: str) -> tuple[str, int]:
    kind = _TYPE.search(declaration)
    count = _COUNT.search(declaration)
    return ("b", 0) if kind is None else (kind[1].replace("s", "u"), _bytes(kind[2], count and count[1]))


def _bytes(bits: str, count: str | None) -> int:
    return int(bits) // 8 * int(count or 1)


def _directive(name: str, directives: str) -> tuple[int, ...] | None:
    """The numbers of a directive for x, y and z, those that it leaves out as 1."""
    match = re.search(rf"\.{name}\s+([\d\s,]+)", directives)
    if match is None:
        return None
    numbers = [int(number) for number in re.findall(r"\d+", match[1])]
    return (*numbers, 1, 1)[:3]
