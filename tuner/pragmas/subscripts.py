"""Subscripts of arrays: the counters of loops that they determine."""

import re
from collections.abc import Mapping, Sequence

from tuner.pragmas.loop_nests import Loop
from tuner.pragmas.loops import LoopBody
from tuner.pragmas.scope import Scope, kind_of_number

_PAIR = 2
_WORD = re.compile(r"[A-Za-z_]\w*")


def fixed_counters(body: LoopBody, array: str, loops: Sequence[Loop], scope: Scope) -> set[str]:
    """Counters that have one value alone for each element of an array.

    If all accesses have the same index in some dimension, two that touch the same element have the same
    value of that index, and so of the counters that it determines.
    """
    found: set[str] = set()
    seen = body.accesses[array]
    for place in range(len(seen[0])):
        indices = {one[place] for one in seen}
        if len(indices) == 1:
            found |= _fixed_by(indices.pop(), {loop.name: loop for loop in loops}, body.local, scope)
    return found


def _fixed_by(index: str, counters: Mapping[str, Loop], varying: set[str], scope: Scope) -> set[str]:
    """Counters that an index determines: of ``i`` and ``i + c``; both of ``i * n + j``, j below n."""
    terms = _terms(index)
    if terms is None or set(_WORD.findall(index)) & varying:
        return set()
    using = [term for term in terms if set(_WORD.findall(term)) & set(counters)]
    if len(using) == 1 and using[0] in counters:
        return {using[0]}
    if len(using) == _PAIR == len(terms):
        for row, column in (using, using[::-1]):
            pair = _row(row, counters)
            if pair is not None and column in counters and column != pair[0]:
                inner, outer = counters[column], counters[pair[0]]
                if _spans(inner, pair[1]) and _exact((outer, inner), pair[1], scope):
                    return {pair[0], column}
    return set()


def _spans(inner: Loop, pitch: str) -> bool:
    """Whether a counter stays from 0 to below the pitch of the rows."""
    bound = "".join((inner.bound.text or b"").decode().split())
    sign = inner.condition.child_by_field_name("operator")
    return inner.first.text == b"0" and bound == pitch and sign is not None and sign.text == b"<"


def _exact(loops: Sequence[Loop], pitch: str, scope: Scope) -> bool:
    """Whether products of a counter and a pitch cannot wrap around to another one."""
    kinds = {scope.kind_of_type(loop.type) for loop in loops}
    kinds.add(kind_of_number(pitch) if pitch[0].isdigit() else scope.kind(pitch))
    return kinds <= {"signed", "large"}


def _row(term: str, counters: Mapping[str, Loop]) -> tuple[str, str] | None:
    """Counter and pitch of ``i*n`` or ``n*i``."""
    factors = term.split("*")
    if len(factors) != _PAIR:
        return None
    for counter, pitch in (factors, factors[::-1]):
        if counter in counters and pitch not in counters and re.fullmatch(r"\w+", pitch):
            return counter, pitch
    return None


def _terms(index: str) -> list[str] | None:
    """The summands of an index of names, numbers, ``*`` and ``+``; None where it has another form."""
    if not re.fullmatch(r"[\w.]+(?:[+*][\w.]+)*(?:-\d+)?", index):
        return None
    return re.sub(r"-(\d+)$", r"+\1", index).split("+")
