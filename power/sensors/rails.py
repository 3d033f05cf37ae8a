"""What a power rail of a Jetson feeds, read off its name, and which rails to tune energy by.

Boards name their rails alike, and new boards join parts in new ways (``VDD_CPU_GPU_CV``,
``VDD_CPU_SOC_MSS``), so names are taken apart instead of listed.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

_PARTS = (  # text within a name, and the part of the board it stands for
    ("GPU", "gpu"),
    ("CPU", "cpu"),
    ("SOC", "soc"),
    ("DDR", "memory"),  # VDDRQ of a Xavier holds it as well
    ("VDDQ", "memory"),
    ("DRAM", "memory"),
    ("MEM", "memory"),
)
_WORDS = {"CV": "cv", "MSS": "memory", "CORE": "soc"}  # too short to be looked for within other words
_INPUTS = ("IN", "VIN", "TOTAL")  # last word of the rail that everything else hangs on
_NUMBER = "#"  # no board has it in a name
_UNCONNECTED = ("", "NC", "N/C", "(NULL)")  # the driver of JetPack 4 prints (null) for a rail without name


@dataclass(frozen=True)
class Choice:
    """One rail, or several that are added up.

    Attributes:
        rails: their names.
        scope: what they see together, for people.
    """

    rails: tuple[str, ...]
    scope: str

    @property
    def name(self) -> str:
        """The rail, or the rails joined by ``+``."""
        return "+".join(self.rails)


def is_connected(name: str) -> bool:
    """False for the names that boards give to channels without a rail."""
    return name.strip().upper() not in _UNCONNECTED


def parts(name: str) -> tuple[str, ...]:
    """What a rail feeds: some of ``input gpu cpu soc cv memory system``; nothing where its name does not say.

    ``input`` is the rail all others hang on, which is everything the module draws. ``system`` is a supply of
    the board that feeds several parts, without all of them.
    """
    upper = name.upper().partition(_NUMBER)[0]
    words = [word for word in re.split(r"[^A-Z0-9]+", upper) if word]
    found = {part for text, part in _PARTS if text in upper}
    found |= {_WORDS[word] for word in words if word in _WORDS}
    if not found and words and words[-1] in _INPUTS:
        return ("input",)
    if not found and any(word.startswith("SYS") for word in words):
        return ("system",)
    return tuple(part for part in ("gpu", "cpu", "soc", "cv", "memory") if part in found)


def choices(names: Sequence[str]) -> list[Choice]:
    """Ways to read power from these rails, the best to tune energy by first.

    First what the whole board draws, since a configuration that saves power on the GPU may spend it on
    memory; then what the GPU hangs on; then, where no rail is the input of the others, the sum of all; then
    every rail alone.

    Args:
        names: connected rails, each name once.
    """
    inputs = [name for name in names if parts(name) == ("input",)]
    gpus = tuple(name for name in names if "gpu" in parts(name))
    found = [Choice((name,), _scope(name)) for name in inputs]
    if gpus:
        found.append(Choice(gpus, " + ".join(map(_scope, gpus))))
    if not inputs and len(names) > 1:
        found.append(Choice(tuple(names), f"{' + '.join(names)} (sum of all rails)"))
    found += [Choice((name,), _scope(name)) for name in names]
    first: dict[tuple[str, ...], Choice] = {}
    for choice in found:
        first.setdefault(choice.rails, choice)
    return list(first.values())


def distinct(names: Sequence[str]) -> list[str]:
    """The same names; one that was there before is numbered, as in ``VDD_IN#2``."""
    taken: set[str] = set()
    result = []
    for name in names:
        numbered = (f"{name}{_NUMBER}{number}" if number > 1 else name for number in itertools.count(1))
        result.append(next(candidate for candidate in numbered if candidate not in taken))
        taken.add(result[-1])
    return result


def _scope(name: str) -> str:
    """A rail with what is known to hang on it."""
    known = parts(name)
    if known == ("input",):
        return f"{name} (total input)"
    return f"{name} ({', '.join(known)})" if known else name
