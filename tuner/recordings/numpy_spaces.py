"""Reads NumPy archives (.npz) that were made of other tuners' caches."""

import io
import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.model.errors import InputError
from tuner.model.plan import TunableValue
from tuner.model.trial import Measurement
from tuner.recordings import checks
from tuner.recordings.other_tuners import STATUS, axis_sizes, measurement, one_workload, value_list
from tuner.recordings.values import RecordedSpace
from tuner.untrusted.archives import member_of, open_zip
from tuner.untrusted.json import load_json

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


def _arrays(path: Path) -> dict[str, Any]:
    import numpy as np  # noqa: PLC0415 - only for these files

    from tuner.untrusted.arrays import array_header  # noqa: PLC0415 - same

    found = {}
    try:
        with open_zip(path) as archive:
            stored = {name.removesuffix(_SUFFIX): name for name in archive.namelist() if _SUFFIX in name}
            missing = [name for name in _NPZ_ARRAYS if name not in stored]
            if missing:
                raise ValueError(f"{missing[0]} is missing; expected arrays {', '.join(_NPZ_ARRAYS)}")
            for name in [one for one in (*_NPZ_ARRAYS, *_FURTHER) if one in stored]:
                data = member_of(archive, stored[name])
                try:
                    array_header(io.BytesIO(data), len(data))
                    found[name] = np.load(io.BytesIO(data), allow_pickle=False)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from error
    except (OSError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error, KeyError) as error:
        raise ValueError(f"not a NumPy archive of a recorded space: {error}") from error
    return found


def _npz(arrays: Mapping[str, Any]) -> RecordedSpace:
    meta = load_json(str(arrays["meta"]))
    names = checks.objects(meta, "names", "meta")
    lists = checks.objects(meta, "values", "meta")
    codes = meta.get("status_codes", list(STATUS))
    if not names or not all(map(checks.TEXT.accepts, names)) or len(set(names)) < len(names):
        raise ValueError(f"meta: names is {checks.shown(names)}; expected different texts")
    if len(names) != len(lists) or not checks.TEXTS.accepts(codes):
        raise ValueError(
            "meta: expected a list of values for every name, and status_codes as a list of texts"
        )
    tunables = {name: value_list(name, values) for name, values in zip(names, lists, strict=True)}
    places = _rows(arrays, tunables)
    kernel = checks.one(meta, "kernel", "meta", checks.NAME)
    measured = _npz_measurements(arrays, len(places), codes)
    return one_workload(
        name=checks.one({"space": kernel, **meta}, "space", "meta", checks.NAME),
        kernel=kernel,
        device=checks.one(meta, "device", "meta", checks.TEXT),
        sizes=axis_sizes(meta.get("problem_size")),
        tunables=tunables,
        rows=[
            (tuple(values[place] for values, place in zip(tunables.values(), row, strict=True)), gave)
            for row, gave in zip(places, measured, strict=True)
        ],
        provenance={"tuner": "Kernel Tuner", **{k: str(meta[k]) for k in ("source", "licence") if k in meta}},
    )


def _rows(arrays: Mapping[str, Any], tunables: Mapping[str, tuple[TunableValue, ...]]) -> list[list[int]]:
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


def _npz_measurements(arrays: Mapping[str, Any], count: int, codes: Sequence[str]) -> list[Measurement]:
    """What every row gave: not-a-number, and a status that is not ok, where it failed."""
    times_ms, places, sigmas_ms, windows_ms = (_column(arrays, *of, count) for of in _MEASURED)
    measured = []
    for row, (time_ms, place) in enumerate(zip(times_ms, places, strict=True)):
        if not 0 <= place < len(codes):
            raise ValueError(
                f"status[{row}] is {place}; expected a place in status_codes, {', '.join(codes)}"
            )
        failed = math.isnan(time_ms)
        if failed == (codes[place] == "ok") or not (failed or 0.0 < time_ms < math.inf):
            raise ValueError(
                f"time_ms[{row}] is {time_ms} and its status {codes[place]};"
                " expected milliseconds above zero, or not-a-number where it failed"
            )
        if failed:
            measured.append(measurement(codes[place]))
        else:
            sigma_ms, window_ms = _known(sigmas_ms[row]), _known(windows_ms[row])
            measured.append(measurement("ok", time_ms, sigma_ms, window_ms=window_ms))
    return measured


def _column(arrays: Mapping[str, Any], name: str, kinds: str, count: int) -> list[Any]:
    """A number per row; zeros where the archive lacks the array."""
    found = arrays.get(name)
    if found is None:
        return [0] * count
    if found.shape != (count,) or found.dtype.kind not in kinds:
        raise ValueError(
            f"{name} is {found.dtype}{list(found.shape)}; expected {count} numbers, one a row of idx"
        )
    values: list[Any] = found.tolist()
    return values


def _known(value: float) -> float:
    """A side value that may be missing: 0 then."""
    return value if checks.AMOUNT.accepts(value) else 0.0
