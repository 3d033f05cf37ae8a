"""Cache files of Kernel Tuner, version 1: results by configuration, to go on from.

A file is one JSON object that is written on; while a run is on, or was killed, its last two braces are
missing. Kernel Tuner binds results to the names of device and kernel, the problem size and the names of the
parameters. What else decides them is added here: under ``tuner`` in the object, and its digest in results.

Several processes may write one file. Each change is made under a lock of the file, by a new one in its place
or by a line at its end, and results of others stay.
"""

import errno
import fcntl
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tuner.kernel_tuner.objectives import Aim, Metrics, with_metrics
from tuner.kernel_tuner.parameters import UserValue
from tuner.model.errors import InputError
from tuner.recordings.other_tuners import FAILURES, closed_json, entry_measurement, packed_text
from tuner.system.whole_file import open_result

Row = dict[str, Any]
_MARK = "tuner"  # key of the object, and of results that this tuner has measured
_SHARED = ("device_name", "kernel_name", "problem_size", "tune_params_keys")  # what Kernel Tuner compares
_END = "}\n}"
_MS = 1e-3
_NAMED = 3  # entries that a warning names


@dataclass(frozen=True)
class Wanted:
    """What a call takes of a cache file.

    Attributes:
        made_with: what decides results, beside what Kernel Tuner compares: name -> digest or text.
        aim: the objective; results without joules are measured again where it needs them.
        metrics: computed anew of every result.
        is_allowed: True for the values of a configuration of the call.
    """

    made_with: Mapping[str, str]
    aim: Aim
    metrics: Metrics | None
    is_allowed: Callable[[Mapping[str, Any]], bool]

    @property
    def digest(self) -> str:
        """Of ``made_with``, short enough for every result."""
        return hashlib.sha256(json.dumps(dict(self.made_with), sort_keys=True).encode()).hexdigest()[:16]


@dataclass
class CacheFile:
    """A cache file that results are appended to.

    Attributes:
        path: the file.
        header: what the results belong to.
        wanted: what the call takes of it.
        rows: results of configurations of the call, by key, with all that it needs.
    """

    path: Path
    header: Mapping[str, Any]
    wanted: Wanted
    rows: dict[str, Row] = field(default_factory=dict)
    _taken: dict[str, Row] = field(default_factory=dict)  # what the file had of them

    def key(self, values: Mapping[str, Any]) -> str:
        """The key of a configuration: its values joined by commas."""
        return ",".join(str(values[name]) for name in self.header["tune_params_keys"])

    def begin(self) -> list[str]:
        """Take what the file has, and open it for more; one that is not there is made.

        Returns:
            What is not taken and why, and what is not known of the rest.

        Raises:
            InputError: the file cannot be used, or its results were made with something else.
        """
        with self._locked():
            found = self._entries()
            told = self._take(found)
            self._replace(found, end="")
        return told

    def add(self, row: Row) -> None:
        """Append a result at once, so that a killed run keeps it.

        Raises:
            InputError: the file cannot be written.
        """
        self.rows[self.key(row)] = row
        with self._locked() as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(_END)))
            end = file.read()
            if end.endswith((b",", b"{")):
                file.write(self._line(row).encode())
            else:  # another process has closed it, or was killed within a line
                self._replace(self._entries() | {self.key(row): self._marked(row)}, end="")

    def close(self, rows: Sequence[Row]) -> None:
        """Write the final results in place of those at the time, and close the object.

        Raises:
            InputError: the file cannot be written.
        """
        self.rows = {self.key(row): row for row in rows}
        with self._locked():
            own = {key: self._taken.get(key) or self._marked(row) for key, row in self.rows.items()}
            others = {key: row for key, row in self._entries().items() if key not in own}
            self._replace(own | others, end=_END)

    # --- what is in it ---------------------------------------------------------------------------

    def _entries(self) -> dict[str, Row]:
        """What the file has, whoever wrote it.

        Raises:
            InputError: it is no cache file, or of another device, kernel, problem, parameters or call.
        """
        if not self.path.stat().st_size:
            return {}
        found = read_cache(self.path)
        for key in _SHARED:
            if key in found and _listed(found[key]) != _listed(self.header[key]):
                raise InputError(
                    f"cache: {self.path} is of another {key}: {found[key]!r}, and this call has"
                    f" {self.header[key]!r}; name another file"
                )
        made, wanted = found.get(_MARK), self.wanted.made_with
        if isinstance(made, Mapping):
            other = [name for name, digest in wanted.items() if made.get(name) != digest]
            if other:
                raise InputError(
                    f"cache: the results of {self.path} were made with other {', '.join(other)} than this"
                    " call has; name another file, or delete it"
                )
        return dict(found["cache"])

    def _take(self, entries: Mapping[str, Row]) -> list[str]:
        """Take the rows that a call can use, and say what it cannot, and what is not known."""
        wrong, foreign, lacking = [], 0, 0
        for key, entry in entries.items():
            try:
                row = self._checked(key, entry)
            except ValueError as error:
                wrong.append(str(error))
                continue
            if not self.wanted.is_allowed(row):
                continue
            if row.pop(_MARK, None) is None:
                foreign += 1
            if self._complete(row):
                self.rows[key] = row
                self._taken[key] = entry
            else:
                lacking += 1
        return list(self._words(wrong, foreign, lacking))

    def _checked(self, key: str, entry: Row) -> Row:
        """An entry with the values that its key says, and the numbers that a measurement can have.

        Raises:
            ValueError: it is none; the message names the key.
        """
        at = f"cache[{key!r}]"
        measured = entry_measurement(entry, at)
        missing = [name for name in self.header["tune_params_keys"] if name not in entry]
        if missing or self.key(entry) != key:
            raise ValueError(f"{at}: is not the result of these values")
        if entry.get(_MARK, self.wanted.digest) != self.wanted.digest:
            raise ValueError(f"{at}: was made with something else than this call has")
        if measured.makespan_s is None:
            return dict(entry)
        return {**entry, "time": entry.get("time") or measured.makespan_s / _MS}

    def _complete(self, row: Row) -> bool:
        """Compute the metrics; False where the row lacks a quantity that the call needs."""
        failure = next((one for one in row.values() if isinstance(one, str) and one in FAILURES), None)
        if failure is not None:
            row.setdefault("__error__", failure)
            return True
        if self.wanted.aim.joules and not _is_amount(row.get("energy")):
            return False
        try:
            with_metrics(row, self.wanted.metrics)
        except InputError:  # a metric needs what nobody has measured
            return False
        return True

    def _words(self, wrong: Sequence[str], foreign: int, lacking: int) -> Iterator[str]:
        if wrong:
            more = f" and {len(wrong) - _NAMED:,} more" if len(wrong) > _NAMED else ""
            yield f"{'; '.join(wrong[:_NAMED])}{more}: not used, and measured again where it is asked for"
        if lacking:
            needs = f"what {self.wanted.aim.key} or a metric needs"
            yield f"{lacking:,} results lack {needs}: they are measured again"
        if foreign:
            known = ", ".join(self.wanted.made_with)
            yield (
                f"{foreign:,} results do not say what they were made with ({known}): they are taken as if it"
                " were what this call has; delete the file to measure them anew"
            )

    # --- how it is written -----------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        """The file, which nobody else changes meanwhile."""
        try:
            while True:
                with open_result(self.path, "ab+", buffering=0) as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    if self._is_in_place(file.fileno()):
                        yield file
                        return
        except OSError as error:
            verb = "locked" if error.errno == errno.ENOLCK else "written"
            raise InputError(f"cache: {self.path}: cannot be {verb}: {error.strerror or error}") from error

    def _is_in_place(self, file: int) -> bool:
        """False where another process has put a new file in its place before this one had the lock."""
        try:
            return os.path.samestat(os.fstat(file), self.path.stat())
        except FileNotFoundError:
            return False

    def _replace(self, rows: Mapping[str, Row], end: str) -> None:
        """Put a file with these rows in place, so that a killed process leaves a whole one."""
        header = {**self.header, _MARK: dict(self.wanted.made_with)}
        head = json.dumps({**header, "cache": {}}, default=plain, indent="")[: -len(_END)]
        text = head + "".join(_line_of(key, row) for key, row in rows.items())
        written = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            written.write_text(f"{text.removesuffix(',')}{end}" if end else text, encoding="utf-8")
            written.chmod(self.path.stat().st_mode)
            written.replace(self.path)
        except OSError:
            written.unlink(missing_ok=True)
            raise

    def _marked(self, row: Row) -> Row:
        return {**row, _MARK: self.wanted.digest}

    def _line(self, row: Row) -> str:
        return _line_of(self.key(row), self._marked(row))


def _line_of(key: str, row: Row) -> str:
    return f"\n{json.dumps({key: row}, default=plain)[1:-1]},"


def _is_amount(value: UserValue) -> bool:
    return isinstance(value, int | float) and 0.0 < value < float("inf")


def open_cache(
    given: UserValue,
    *,
    device_name: str,
    kernel_name: str,
    problem_size: UserValue,
    tunables: Mapping[str, Sequence[UserValue]],
    wanted: Wanted,
) -> CacheFile:
    """The cache file of a call, with the results in it; a warning says what is not known of them.

    Raises:
        InputError: it cannot be read, or belongs to another device, kernel, problem size, space or call.
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
        "objective": wanted.aim.key,
    }
    cache = CacheFile(path.resolve(), header, wanted)
    for sentence in cache.begin():
        warnings.warn(f"cache: {path}: {sentence}", stacklevel=2)
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
