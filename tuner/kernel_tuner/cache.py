"""Cache files of Kernel Tuner, version 1: results by configuration, to go on from.

A file is one JSON object that is written on; where a run was killed, its last two braces are missing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import InputError
from tuner.kernel_tuner.geometry import ProblemSize
from tuner.kernel_tuner.parameters import UserValue
from tuner.model import TunableValue
from tuner.recordings.other_tuners import closed_json, packed_text

Row = dict[str, Any]


@dataclass
class CacheFile:
    """A cache file that results are appended to.

    Attributes:
        path: the file; ``.json`` is appended where it is missing.
        header: what the results belong to.
        rows: the results by key.
    """

    path: Path
    header: dict[str, Any]
    rows: dict[str, Row] = field(default_factory=dict)

    def key(self, values: Mapping[str, Any]) -> str:
        """The key of a configuration: its values joined by commas."""
        return ",".join(str(values[name]) for name in self.header["tune_params_keys"])

    def begin(self) -> None:
        """Write what is known, open for more.

        Raises:
            InputError: the file cannot be written.
        """
        head = json.dumps({**self.header, "cache": {}}, default=plain, indent="")[:-3]  # without "}\n}"
        self._put("w", head + "".join(map(self._line, self.rows.values())))

    def add(self, row: Row) -> None:
        """Append a result at once, so that a killed run keeps it.

        Raises:
            InputError: the file cannot be written.
        """
        self.rows[self.key(row)] = row
        self._put("a", self._line(row))

    def close(self, rows: Sequence[Row]) -> None:
        """Write the final results in place of those at the time, and close the object.

        Raises:
            InputError: the file cannot be written.
        """
        self.rows = {self.key(row): row for row in rows}
        self.begin()
        text = self.path.read_text(encoding="utf-8").removesuffix(",")
        self._put("w", f"{text}}}\n}}")

    def _line(self, row: Row) -> str:
        return f"\n{json.dumps({self.key(row): row}, default=plain)[1:-1]},"

    def _put(self, mode: str, text: str) -> None:
        try:
            with self.path.open(mode, encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise InputError(f"cache: {self.path}: cannot be written: {error.strerror or error}") from error


def open_cache(
    given: UserValue,
    *,
    device_name: str,
    kernel_name: str,
    problem_size: ProblemSize,
    tunables: Mapping[str, Sequence[TunableValue]],
    objective: str,
) -> CacheFile:
    """The cache file of a call, with the results in it.

    Raises:
        InputError: it cannot be read, or belongs to another device, kernel, problem size or space.
    """
    if not isinstance(given, str | Path):
        raise InputError(f"cache: must be the name of a file, not {given!r}")
    path = Path(given)
    path = path if path.suffix == ".json" else path.with_name(f"{path.name}.json")
    header = {
        "device_name": device_name,
        "kernel_name": kernel_name,
        "problem_size": "callable" if callable(problem_size) else _listed(problem_size),
        "tune_params_keys": list(tunables),
        "tune_params": {name: list(values) for name, values in tunables.items()},
        "objective": objective,
    }
    cache = CacheFile(path, header)
    if path.exists():
        found = read_cache(path)
        for key in ("device_name", "kernel_name", "problem_size", "tune_params_keys"):
            if key in found and _listed(found[key]) != _listed(header[key]):
                raise InputError(
                    f"cache: {path} is of another {key}: {found[key]!r}, and this call has {header[key]!r}"
                )
        cache.rows = found["cache"]
    cache.begin()
    return cache


def read_cache(path: Path) -> dict[str, Any]:
    """A cache file as an object, also where its last braces are missing.

    Raises:
        InputError: it cannot be read, or is no cache file.
    """
    try:
        found = closed_json(packed_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"cache: {path} is no cache file of Kernel Tuner (version 1): {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("cache"), dict):
        raise InputError(f"cache: {path} is no cache file of Kernel Tuner (version 1)")
    return found


def plain(value: UserValue) -> UserValue:
    """NumPy's numbers and arrays as JSON has them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return str(value)


def _listed(value: UserValue) -> UserValue:
    """Numbers and lists in one form: 4 is [4]."""
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(one) if isinstance(one, np.generic) else one for one in value]
    return [value.item() if isinstance(value, np.generic) else value]
