"""What an administrator rules for clocks: ``/etc/tuner/clockd.toml``, which need not be there.

The format, in MHz, lowest and highest; ``"*"`` is every GPU that is not named::

    [baseline]  # locked again after a reset, as NVML does not tell which lock was there before
    "GPU-6f0d..." = [345, 1410]
    [limits]    # clocks that may be set
    "*" = [345, 1755]
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import InputError

from .actuator import Rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EVERY = "*"
_TABLES = ("baseline", "limits")
_NAME = re.compile(r"\*|[A-Za-z0-9][A-Za-z0-9._:-]*")
_HIGHEST_MHZ = 100_000  # no clock is near it: kHz or Hz were written
_ENDS = 2

Range = tuple[int, int]


@dataclass(frozen=True)
class ClockConfig:
    """Ranges in MHz by GPU: a UUID, a devfreq node, or ``*`` for those that are not named."""

    baseline: Mapping[str, Range] = field(default_factory=dict)
    limits: Mapping[str, Range] = field(default_factory=dict)

    def rules(self, gpu: str) -> Rules:
        """What holds for one GPU."""
        return Rules(_of(self.limits, gpu), _of(self.baseline, gpu))


def load(path: Path) -> ClockConfig:
    """Read the file; without one, nothing is ruled.

    Raises:
        InputError: it cannot be read or understood; the message names file and key.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ClockConfig()
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or not TOML
        raise InputError(f"{path}: {error}") from error
    unknown = sorted(document.keys() - set(_TABLES))
    if unknown:
        raise InputError(f"{path}: unknown key {unknown[0]!r}; there may be [baseline] and [limits]")
    return ClockConfig(**{table: _ranges(path, table, document.get(table, {})) for table in _TABLES})


def _ranges(path: Path, table: str, entries: Any) -> dict[str, Range]:  # noqa: ANN401 - whatever TOML holds
    if not isinstance(entries, dict):
        raise InputError(f'{path}: {table} must be a table of ranges, e.g. "*" = [345, 1410]')
    for name, ends in entries.items():
        if not _NAME.fullmatch(name):
            raise InputError(f'{path}: {table}.{name!r}: name a GPU by its UUID or devfreq node, or "*"')
        # bool is an int to Python, and no clock
        whole = isinstance(ends, list) and len(ends) == _ENDS and all(type(end) is int for end in ends)
        if not whole or not 0 < ends[0] <= ends[1] <= _HIGHEST_MHZ:
            raise InputError(f"{path}: {table}.{name}: {ends!r} is not [lowest, highest] in MHz")
    return {name: (ends[0], ends[1]) for name, ends in entries.items()}


def _of(ranges: Mapping[str, Range], gpu: str) -> Range | None:
    return ranges.get(gpu, ranges.get(EVERY))
