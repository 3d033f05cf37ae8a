"""Spaces that other tuners recorded: one workload, its tunables, times; no launches, limits or roles.

Their joules are not read: they come without an uncertainty. The simulation caches of Kernel Tuner are JSON
whose closing brackets may be missing.
"""

import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.model.errors import InputError
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Configuration, TunableValue
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.recordings import checking
from tuner.recordings.checking import Fields
from tuner.recordings.values import RecordedSpace, RecordedWorkload
from tuner.space.occupancy import candidate
from tuner.space.search_view import Candidate
from tuner.system.untrusted.archives import array_header, gunzip, member_of, open_zip
from tuner.system.untrusted.reading import JSON_BYTES, load_json, read_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray  # NumPy is imported for .npz files only

    Arrays = Mapping[str, NDArray[Any]]

STATUS = {
    "ok": Status.OK,
    "CompilationFailedConfig": Status.COMPILE_ERROR,
    "RuntimeFailedConfig": Status.LAUNCH_ERROR,
    "InvalidConfig": Status.LAUNCH_ERROR,
    "ErrorConfig": Status.LAUNCH_ERROR,
    "other": Status.LAUNCH_ERROR,
}
_MS = 1e-3
_AXES = ("x", "y", "z")
LEFT_OUT = "left_out"
"""Key of the provenance: sentences about the entries of a file that are no measurements."""
FAILURES = tuple(name for name in STATUS if name not in ("ok", "other"))
_GZIP = b"\x1f\x8b"  # public caches are often packed
_OPEN_ENDINGS = ("", "}", "}}")  # what a cache of a tuning that was stopped lacks


class OneSpace:
    """A file that holds a single recorded space; used as ``RecordingFile`` is."""

    def __init__(self, path: Path, space: RecordedSpace) -> None:
        self.path = path
        self._space = space

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The names of the workloads of every space."""
        return (self._space.names,)

    def space(self, names: Sequence[str]) -> RecordedSpace:
        """The space of these workloads.

        Raises:
            InputError: it is another one.
        """
        if tuple(names) != self._space.names:
            names_here = " + ".join(self._space.names)
            raise InputError(f"{self.path}: no recorded space of {' + '.join(names)}; there is {names_here}")
        return self._space

    def sensor(self, names: Sequence[str]) -> str:
        """The reading that the joules of a space came from: none."""
        return self.space(names).sensor


def one_workload(
    *,
    name: str,
    kernel: str,
    device: str,
    sizes: Mapping[str, int | str],
    tunables: Mapping[str, tuple[TunableValue, ...]],
    rows: Iterable[tuple[tuple[TunableValue, ...], Measurement]],
    provenance: Mapping[str, Any],
) -> RecordedSpace:
    """The space of configurations (values in the order of the tunables) and what each gave.

    Raises:
        ValueError: a configuration is there twice, or there is none.
    """
    trials: dict[Trial, Measurement] = {}
    candidates: list[Candidate] = []
    for values, gave in rows:
        configuration = Configuration(tuple(zip(tunables, values, strict=True)))
        trial = Trial((configuration,))
        if trial in trials:
            raise ValueError(f"{configuration} is in it twice")
        trials[trial] = gave
        candidates.append(candidate(configuration, (), {}))
    if not trials:
        raise ValueError("no configuration is in it")
    workload = RecordedWorkload(
        name=re.sub(r"[+/\\\s]+", "_", name),
        kernel=kernel,
        family="",
        sizes=sizes,
        batch=1,
        fingerprint="",
        tunables=tunables,
        roles={},
        default=candidates[0].configuration,
        candidates=tuple(candidates),
    )
    identity = DeviceIdentity("", device, device, driver="", runtime="", modelled=False)
    return RecordedSpace((workload,), identity, None, trials, provenance=provenance)


def value_list(name: str, values: Any) -> tuple[TunableValue, ...]:  # noqa: ANN401 - any JSON value
    """The values of a tunable.

    Raises:
        ValueError: it is no list of different texts or numbers.
    """
    if not isinstance(values, list) or not values or not all(map(checking.VALUE.accepts, values)):
        raise ValueError(f"values of {name}: {checking.shown(values)}; expected a list of texts or numbers")
    if len(set(values)) < len(values):
        raise ValueError(f"values of {name}: {checking.shown(values)}; a value is in it twice")
    return tuple(values)


def axis_sizes(problem_size: Any) -> dict[str, int | str]:  # noqa: ANN401 - any JSON value
    """Problem sizes by axis; none where they are not stated as numbers."""
    listed = problem_size if isinstance(problem_size, list) else [problem_size]
    if not all(map(checking.COUNT.accepts, listed)):
        return {}
    return dict(zip(_AXES, listed, strict=False))


def measurement(
    status: str,
    time_ms: float | None = None,
    sigma_ms: float = 0.0,
    repeats: int = 0,
    *,
    window_ms: float = 0.0,
    check_ms: float = 0.0,
) -> Measurement:
    """A measurement by its times; the mean of several repeats is surer than one of them."""
    if time_ms is None:
        return Measurement((WorkloadResult(STATUS.get(status, Status.LAUNCH_ERROR), detail=status),))
    time_s, sigma_s = time_ms * _MS, sigma_ms * _MS
    return Measurement(
        results=(WorkloadResult(Status.OK, time_s, sigma_s),),
        makespan_s=time_s,
        makespan_spread_s=sigma_s,
        makespan_uncertainty_s=sigma_s / math.sqrt(max(1, repeats)),
        rounds=repeats,
        window_s=window_ms * _MS,
        check_s=check_ms * _MS,
    )


def read_cache(path: Path) -> RecordedSpace:
    """The space of a Kernel Tuner cache.

    Raises:
        InputError: it is none, or something in it is wrong; the message names the entry.
    """
    try:
        return _cache(closed_json(packed_text(path)), path)
    except (ValueError, OverflowError) as error:  # such as a sum of times that no float holds
        raise InputError(f"{path}: {error}") from error


def packed_text(path: Path) -> str:
    """The text of a file, which may be packed by gzip.

    Raises:
        ValueError: it cannot be read, or is too large.
    """
    try:
        content = read_bytes(path, JSON_BYTES)
    except OSError as error:
        raise ValueError(f"cannot be read: {error}") from error
    return (gunzip(content) if content.startswith(_GZIP) else content).decode()


def closed_json(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON value; a cache is written entry by entry, and closed only when its tuning has ended.

    Not-a-number and infinity, which metrics may be and Python writes, are taken: readers look at numbers.

    Raises:
        ValueError: it is no JSON.
    """
    body = text.rstrip().removesuffix(",")
    troubles = []
    whole_entries = body[: body.rfind("}") + 1] + _OPEN_ENDINGS[-1]  # where it was stopped within an entry
    for closed in (*(body + ending for ending in _OPEN_ENDINGS), whole_entries):
        try:
            return load_json(closed, non_finite=True)
        except json.JSONDecodeError as error:  # noqa: PERF203 - four times at most
            troubles.append(error)
    raise ValueError(f"neither a recorded space nor a Kernel Tuner cache: not JSON: {troubles[0]}")


def _cache(document: object, path: Path) -> RecordedSpace:
    fields = Fields(document, "cache file")
    lists = fields.fields("tune_params").raw
    names = fields.get("tune_params_keys", list(lists))
    if not checking.TEXTS.accepts(names) or set(names) != set(lists) or len(names) != len(lists):
        raise ValueError(
            f"cache file: tune_params_keys is {checking.shown(names)}; expected the names of tune_params"
        )
    tunables = {name: value_list(name, lists[name]) for name in names}
    rows: dict[tuple[TunableValue, ...], Measurement] = {}
    wrong = []
    for key, entry in fields.fields("cache").raw.items():
        at = f"cache[{key!r}]"
        try:
            values = _values(Fields(entry, at), tunables)
            if values in rows:
                raise ValueError(f"{at}: its configuration is in it twice")  # noqa: TRY301 - told with others
            rows[values] = entry_measurement(entry, at)
        except ValueError as error:
            wrong.append(str(error))
    if wrong and not rows:
        raise ValueError(wrong[0])
    kernel = fields.value("kernel_name", checking.NAME)
    return one_workload(
        name=kernel,
        kernel=kernel,
        device=fields.value("device_name", checking.TEXT),
        sizes=axis_sizes(fields.get("problem_size")),
        tunables=tunables,
        rows=rows.items(),
        provenance={
            "tuner": "Kernel Tuner",
            "file": path.name,
            "objective": str(fields.get("objective", "")),
            **({LEFT_OUT: wrong} if wrong else {}),
        },
    )


def _values(entry: Fields, tunables: Mapping[str, tuple[TunableValue, ...]]) -> tuple[TunableValue, ...]:
    values = tuple(entry.value(name, checking.VALUE) for name in tunables)
    for (name, listed), value in zip(tunables.items(), values, strict=True):
        if value not in listed:
            raise ValueError(f"{entry.where}: {name} is {value!r}, which tune_params does not list")
    return values


def entry_measurement(entry: object, at: str) -> Measurement:
    """The measurement of an entry of a cache: it failed where any value is the name of a failure.

    Raises:
        ValueError: its times are none, or it is no object.
    """
    fields = Fields(entry, at)
    failure = next((v for v in fields.raw.values() if isinstance(v, str) and v in FAILURES), None)
    if failure is not None:
        return measurement(failure)
    times = fields.get("times")
    if times is not None and (not isinstance(times, list) or not all(map(checking.POSITIVE.accepts, times))):
        raise ValueError(f"{at}: times is {checking.shown(times)}; expected milliseconds above zero")
    time_ms = fields.get("time")
    if time_ms is None and times:
        time_ms = math.fsum(times) / len(times)
    if not checking.POSITIVE.accepts(time_ms):
        choices = ", ".join(FAILURES)
        raise ValueError(
            f"{at}: time is {checking.shown(time_ms)}; expected milliseconds above zero, or {choices}"
        )
    spent = [fields.get(name, 0.0) for name in ("benchmark_time", "verification_time")]
    window_ms, check_ms = (value if checking.AMOUNT.accepts(value) else 0.0 for value in spent)
    sigma_ms = _sigma(times or ())
    return measurement("ok", time_ms, sigma_ms, len(times or ()), window_ms=window_ms, check_ms=check_ms)


def _sigma(values: Sequence[float]) -> float:
    """Standard deviation of one value among these; 0 where that is not known."""
    if len(values) < 2:  # noqa: PLR2004 - one value has no scatter
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.dist(values, [mean] * len(values)) / math.sqrt(len(values) - 1)


_NPZ_ARRAYS = ("meta", "idx", "time_ms", "status")
_FURTHER = ("time_sd_ms", "bench_ms")
_SUFFIX = ".npy"
_MEASURED = (("time_ms", "f"), ("status", "iu"), ("time_sd_ms", "f"), ("bench_ms", "f"))  # and their kinds


def read_npz(path: Path) -> RecordedSpace:
    """The space of a NumPy archive.

    It holds ``meta`` (JSON text: ``space``, ``kernel``, ``device``, ``names``, ``values``, ``status_codes``),
    ``idx`` (rows × tunables, positions in the value lists), ``time_ms`` (not-a-number where a configuration
    failed), ``status`` (positions in ``status_codes``), and if known ``time_sd_ms`` and ``bench_ms``.

    Raises:
        InputError: it is none, or something in it is wrong; the message names the array.
    """
    try:
        return _npz(_arrays(path))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


def _arrays(path: Path) -> "Arrays":
    import numpy as np  # noqa: PLC0415 - only for these files

    arrays: dict[str, NDArray[Any]] = {}
    try:
        with open_zip(path) as archive:
            stored = {name.removesuffix(_SUFFIX): name for name in archive.namelist() if _SUFFIX in name}
            missing = [name for name in _NPZ_ARRAYS if name not in stored]
            if missing:
                raise ValueError(f"{missing[0]} is missing; expected arrays {', '.join(_NPZ_ARRAYS)}")
            for name in [name for name in (*_NPZ_ARRAYS, *_FURTHER) if name in stored]:
                data = member_of(archive, stored[name])
                try:
                    array_header(io.BytesIO(data), len(data))
                    arrays[name] = np.load(io.BytesIO(data), allow_pickle=False)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from error
    except (OSError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error, KeyError) as error:
        raise ValueError(f"not a NumPy archive of a recorded space: {error}") from error
    return arrays


def _npz(arrays: "Arrays") -> RecordedSpace:
    meta = Fields(load_json(str(arrays["meta"])), "meta")
    names, lists = meta.entries("names"), meta.entries("values")
    codes = meta.get("status_codes", list(STATUS))
    if not names or not all(map(checking.TEXT.accepts, names)) or len(set(names)) < len(names):
        raise ValueError(f"meta: names is {checking.shown(names)}; expected different texts")
    if len(names) != len(lists) or not checking.TEXTS.accepts(codes):
        raise ValueError(
            "meta: expected a list of values for every name, and status_codes as a list of texts"
        )
    tunables = {name: value_list(name, values) for name, values in zip(names, lists, strict=True)}
    places = _rows(arrays, tunables)
    kernel = meta.value("kernel", checking.NAME)
    measured = _npz_measurements(arrays, len(places), codes)
    return one_workload(
        name=meta.value("space", checking.NAME) if "space" in meta else kernel,
        kernel=kernel,
        device=meta.value("device", checking.TEXT),
        sizes=axis_sizes(meta.get("problem_size")),
        tunables=tunables,
        rows=[
            (tuple(values[position] for values, position in zip(tunables.values(), row, strict=True)), gave)
            for row, gave in zip(places, measured, strict=True)
        ],
        provenance={"tuner": "Kernel Tuner", **{k: str(meta[k]) for k in ("source", "licence") if k in meta}},
    )


def _rows(arrays: "Arrays", tunables: Mapping[str, tuple[TunableValue, ...]]) -> list[list[int]]:
    idx = arrays["idx"]
    if idx.ndim != 2 or idx.dtype.kind not in "iu" or idx.shape[1] != len(tunables):  # noqa: PLR2004
        raise ValueError(
            f"idx is {idx.dtype}{list(idx.shape)}; expected whole numbers, rows × {len(tunables)}"
        )
    for column, (name, values) in zip(idx.T, tunables.items(), strict=True):
        if len(column) and not 0 <= int(column.min()) <= int(column.max()) < len(values):
            raise ValueError(
                f"idx: positions of {name} go from {column.min()} to {column.max()};"
                f" it has {len(values)} values"
            )
    rows: list[list[int]] = idx.tolist()
    return rows


def _npz_measurements(arrays: "Arrays", count: int, codes: Sequence[str]) -> list[Measurement]:
    """Return the measurement of every row: not-a-number, and a status that is not ok, where it failed."""
    times_ms, positions, sigmas_ms, windows_ms = (_column(arrays, *of, count) for of in _MEASURED)
    measured = []
    for row, (time_ms, position) in enumerate(zip(times_ms, positions, strict=True)):
        if not 0 <= position < len(codes):
            raise ValueError(
                f"status[{row}] is {position}; expected a place in status_codes, {', '.join(codes)}"
            )
        failed = math.isnan(time_ms)
        if failed == (codes[position] == "ok") or not (failed or 0.0 < time_ms < math.inf):
            raise ValueError(
                f"time_ms[{row}] is {time_ms} and its status {codes[position]};"
                " expected milliseconds above zero, or not-a-number where it failed"
            )
        if failed:
            measured.append(measurement(codes[position]))
        else:
            sigma_ms, window_ms = _known(sigmas_ms[row]), _known(windows_ms[row])
            measured.append(measurement("ok", time_ms, sigma_ms, window_ms=window_ms))
    return measured


def _column(arrays: "Arrays", name: str, kinds: str, count: int) -> list[Any]:
    """A number per row; zeros where the archive lacks the array."""
    array = arrays.get(name)
    if array is None:
        return [0] * count
    if array.shape != (count,) or array.dtype.kind not in kinds:
        raise ValueError(
            f"{name} is {array.dtype}{list(array.shape)}; expected {count} numbers, one a row of idx"
        )
    values: list[Any] = array.tolist()
    return values


def _known(value: float) -> float:
    """A side value that may be missing: 0 then."""
    return value if checking.AMOUNT.accepts(value) else 0.0
