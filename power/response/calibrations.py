"""The store of calibrations: a JSON file of response models by GPU, driver and reading.

    {"version": 1, "calibrations": [{"gpu": UUID, "driver": ..., "reading": ..., "date": ..., "tuner": ...,
                                     "period_s": ..., "response": {"kind": "lag", "capacitance_s": ...}}],
     "checksum": ...}

A wrong response means wrong joules, so that a checksum tells whether the file still says what was written. A
file without one is of an earlier version, and gets one when something is stored. A damaged file is not used,
and set aside as NAME.damaged when something is stored.

A driver may change what its readings are, so that an entry of another driver is not used; it stays in the
file for the day the driver comes back.
"""

import fcntl
import json
import logging
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, get_args, get_type_hints

from tuner.model.errors import StoreDamagedError, StoreError
from tuner.model.typed import sealed, unsealed
from tuner.model.version import VERSION
from tuner.system.ownership import open_lock

from ..base import Response

_LOG = logging.getLogger(__name__)
FORMAT_VERSION = 1
_KINDS = get_args(get_type_hints(Response)["kind"])
_NUMBERS = tuple(field.name for field in fields(Response) if field.name.endswith("_s"))
_SIGNED = "delay_s"  # a driver's time stamps may be late


@dataclass(frozen=True)
class Calibration:
    """A stored response model.

    Attributes:
        gpu: UUID of the GPU; ``sim:...`` of a simulated one, which no real one is called.
        driver: version of its driver.
        reading: name of the reading.
        response: its model.
        period_s: time between its samples.
        date: when it was found, ISO 8601 in UTC.
        tuner: version of this program that found it.
    """

    gpu: str
    driver: str
    reading: str
    response: Response
    period_s: float
    date: str = ""
    tuner: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Key for lookups: GPU, driver and reading."""
        return self.gpu, self.driver, self.reading


def load(path: Path, gpu: str, driver: str) -> dict[str, Response]:
    """Calibrated responses of a GPU under a driver, by name of the reading; empty without a file.

    Raises:
        StoreError: the file cannot be read, or is not what this program wrote; it is named.
    """
    return {
        calibration.reading: calibration.response
        for calibration in entries(path)
        if calibration.key[:2] == (gpu, driver)
    }


def entries(path: Path) -> list[Calibration]:
    """All calibrations in a file, in its order; empty without a file.

    Raises:
        StoreError: see ``load``.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"the calibrations in {path} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise StoreDamagedError(
            f"{path} is damaged: {error}; it is not used: run tuner power calibrate, which sets it aside"
        ) from error
    try:
        return _entries(json.loads(text))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise StoreDamagedError(
            f"{path} is damaged, or holds no calibrations of power sensors: {why}; it is not used: run tuner"
            " power calibrate, which sets it aside"
        ) from error


def document(path: Path) -> dict[str, Any]:
    """All calibrations in a file, for a backup; empty without a file, or where it is damaged."""
    try:
        there = entries(path)
    except StoreError as error:
        _LOG.warning("left out of the backup: %s", error)
        return {}
    return _document(there) if there else {}


def add(path: Path, document: Mapping[str, Any]) -> None:
    """Add the calibrations of a backup to a file; of two of one reading, the later one stays.

    Args:
        path: of the file.
        document: as ``document`` gives it; its checksum is that of the backup.

    Raises:
        StoreError: see ``store``.
    """
    if not document:
        return
    try:
        with _locked(path):
            found = [*_usable(path), *_entries(document)]
            latest = {
                calibration.key: calibration for calibration in sorted(found, key=lambda each: each.date)
            }
            _write(path, list(latest.values()))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise StoreDamagedError(f"the calibrations of the backup cannot be used: {error!r}") from error
    except OSError as error:
        raise StoreError(f"calibrations cannot be stored in {path}: {error}") from error


def prepare(path: Path) -> None:
    """Find out now what would keep ``store`` from its work after a calibration.

    Raises:
        StoreError: see ``store``.
    """
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with _locked(path):
            _usable(path)
    except OSError as error:
        raise StoreError(f"calibrations cannot be stored in {path}: {error}") from error


def store(path: Path, gpu: str, driver: str, responses: Mapping[str, tuple[Response, float]]) -> None:
    """Add calibrations to a file, replacing those of the same GPU, driver and reading; all or nothing.

    Args:
        path: of the file; it and its directory are made where missing.
        gpu: UUID of the GPU.
        driver: version of its driver.
        responses: response and period in seconds, by name of the reading.

    Raises:
        StoreError: the file cannot be written.
    """
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    new = [
        Calibration(gpu, driver, reading, response, period_s, now, VERSION)
        for reading, (response, period_s) in responses.items()
    ]
    replaced = {calibration.key for calibration in new}
    prepare(path)
    try:
        with _locked(path):
            others = [calibration for calibration in _usable(path) if calibration.key not in replaced]
            _write(path, [*others, *new])
    except OSError as error:
        raise StoreError(f"calibrations cannot be stored in {path}: {error}") from error


def _usable(path: Path) -> list[Calibration]:
    """The calibrations of a file that is about to be written; a damaged one is set aside."""
    try:
        return entries(path)
    except StoreDamagedError as error:
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        _LOG.warning("%s: kept as %s", error, aside)
        return []


def _entries(document: Any) -> list[Calibration]:  # noqa: ANN401 - whatever JSON holds
    """The calibrations of a document; errors are those of ``_entry``."""
    content = unsealed(document, ("version", "calibrations"), earlier=True)
    if content["version"] != FORMAT_VERSION:
        raise ValueError(f"it is no file of version {FORMAT_VERSION}")
    return [_entry(item) for item in content["calibrations"]]


def _entry(item: Any) -> Calibration:  # noqa: ANN401 - whatever JSON holds
    """A stored calibration, every value of it checked.

    Raises:
        ValueError: a value is impossible.
        KeyError: one is missing.
        TypeError: one is of another type.
    """
    names = ("gpu", "driver", "reading", "date", "tuner")
    for name in names:
        if not isinstance(item[name], str):
            raise TypeError(f"{name} is {item[name]!r}, not a text")
    raw = item["response"]
    if raw["kind"] not in _KINDS:
        raise ValueError(f"the kind of a response is {raw['kind']!r}, not one of {', '.join(_KINDS)}")
    if not isinstance(raw["averages"], bool):
        raise TypeError(f"averages is {raw['averages']!r}, not true or false")
    numbers = {name: _number(name, raw[name]) for name in _NUMBERS}
    response = Response(kind=raw["kind"], origin="calibrated", averages=raw["averages"], **numbers)
    if (response.kind == "lag") != (response.capacitance_s > 0):
        raise ValueError(f"a {response.kind} has a capacitance_s of {response.capacitance_s:g}")
    if (response.kind in ("boxcar", "ramp")) != (response.window_s > 0):
        raise ValueError(f"a {response.kind} has a window_s of {response.window_s:g}")
    period_s = _number("period_s", item["period_s"])
    return Calibration(response=response, period_s=period_s, **{name: item[name] for name in names})


def _number(name: str, value: object) -> float:
    """A finite number, not negative unless a delay."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}, not a number of seconds")
    if value < 0 and name != _SIGNED:
        raise ValueError(f"{name} is {value!r}, less than 0")
    return float(value)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from replacing the file between our reading and our writing."""
    lock = open_lock(path.with_name(f".{path.name}.lock"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _document(calibrations: Sequence[Calibration]) -> dict[str, Any]:
    return sealed({"version": FORMAT_VERSION, "calibrations": [asdict(item) for item in calibrations]})


def _write(path: Path, calibrations: Sequence[Calibration]) -> None:
    """Replace a file so that a reader, or a crash, sees the old one or the new one."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
    ) as stream:
        temporary = Path(stream.name)
        try:
            json.dump(_document(calibrations), stream, indent=1, allow_nan=False)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
            temporary.chmod(0o644)  # the file of a system is read by its users
            if os.geteuid() == 0:  # what root makes stays usable for the service's user
                owner = path.parent.stat()
                os.chown(temporary, owner.st_uid, owner.st_gid)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
