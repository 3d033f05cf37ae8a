"""``daemon.toml`` read and checked: one line per wrong key, and the last good file kept for a start.

The form of its tables is in ``settings``; the checks here are of words that must be known, and of keys that
must fit together.
"""

import hashlib
import json
import logging
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from cronsim import CronSim, CronSimError
from pydantic import BaseModel, ValidationError

from tuner.daemon.settings import ServiceTable, SetTable, Settings, TuningTable, bound
from tuner.devices.gpu_models import gpu_model, gpu_names
from tuner.kernel_files import kernel_document as messages
from tuner.model.errors import InputError, UnknownNameError, suggestion
from tuner.model.jobs import DeviceChoice, wrong_choice
from tuner.search.option_checks import complaints as option_complaints
from tuner.system.ownership import replace_file
from tuner.system.untrusted.reading import HEADER, line_of, load_toml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LONGEST_SOCKET = 107  # bytes of a path that unix(7) binds
_GROUP = re.compile(
    r"[^\x00-\x1f\x7f:,/]{1,256}"
)  # a directory's may have spaces; a line of group(5) has no more
_CUDA = re.compile(r"[0-9]{1,4}")  # as clients may name them
_WORKLOAD = re.compile(r"[!-~]+")  # as clients may name them
_CRON_FIELDS = 5  # a sixth would be seconds, and windows do not begin within a minute
_CRON_HELP = (
    "write minute, hour, day of the month, month and day of the week, such as '0 22 * * 1-5' for 22:00 from"
    " Monday to Friday"
)

Complaint = tuple[str, str]
"""A key as the file writes it, and what is wrong with it."""

SYSTEM_FILE = Path("/etc/tuner/daemon.toml")
MAX_SHOWN = 10  # lines; who has more mistakes than that starts with these
MAX_BYTES = 2**18  # thousands of sets fit; a mistaken path must not be read into memory
_ARRAYS = ("set", "window")
_SIMPLE = {
    "path_type": "must be text",
    "tuple_type": "must be a list",
    "finite_number": "must be a finite number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is larger than any computer counts",
}


def key(table: str, name: str = "", number: int | None = None) -> str:
    """A key as the file writes it: ``[tuning] policy``, ``[[set]] 2 name``; numbers count from 0."""
    shown_table = f"[{table}]" if number is None else f"[[{table}]] {number + 1}"
    return f"{shown_table} {name}".rstrip()


def complaints(settings: Settings) -> list[Complaint]:
    """All that is wrong in settings of the right form, in the order of the file."""
    return [
        *_service(settings.service),
        *_paths("kernels", (("directories", path) for path in settings.kernels.directories)),
        *_tuning(settings.tuning),
        *_sets(settings),
        *_windows(settings),
        *_tcp(settings),
    ]


def _service(service: ServiceTable) -> Iterator[Complaint]:
    yield from _paths("service", (("socket", service.socket), ("state", service.state)))
    if service.socket is not None and len(str(service.socket).encode()) > _LONGEST_SOCKET:
        yield (
            key("service", "socket"),
            f"longer than the {_LONGEST_SOCKET} bytes that a socket's path may have",
        )
    if not _GROUP.fullmatch(service.group):
        yield (
            key("service", "group"),
            f"{service.group!r} is no name of a group; name one, such as tuner",
        )
    if service.socket is not None and os.path.isdir(service.socket):  # noqa: PTH112 - Path's may raise
        yield key("service", "socket"), f"{service.socket} is a directory; name a file in it"
    if service.state is not None and os.path.isfile(service.state):  # noqa: PTH113 - so may this
        yield key("service", "state"), f"{service.state} is a file; name a directory"
    yield from _devices(key("service", "devices"), service.devices)


def _paths(table: str, paths: Iterable[tuple[str, Path | None]]) -> Iterator[Complaint]:
    for name, path in paths:
        if path is not None and "\0" in str(path):
            yield key(table, name), f"{str(path)!r} holds a character that no path can have"
        elif path is not None and not path.is_absolute():
            yield (
                key(table, name),
                f"{str(path)!r} must be a path from the root, such as /etc/tuner/{path.name}",
            )


def _devices(where: str, specs: Sequence[str]) -> Iterator[Complaint]:
    yield from ((where, wrong) for wrong in map(wrong_device, specs) if wrong)
    yield from _twice(where, specs)


def wrong_device(spec: str) -> str:
    """Return the error in the name of a device, and its correction; empty if the name is valid."""
    kind, _, rest = spec.partition(":")
    valid = {
        "cuda": _CUDA.fullmatch(rest) is not None,
        "sim": _simulated(rest),
        "replay": bool(rest) and "\0" not in rest,
    }
    if valid.get(kind, False):
        return ""
    simulated = [f"sim:{name}" for name in gpu_names()]
    near = suggestion(spec, ["cuda:0", *simulated])
    return f"unknown device {spec!r}; choose cuda:N or one of {', '.join(simulated)}{near}"


def _simulated(name: str) -> bool:
    try:
        return gpu_model(name).name == name
    except UnknownNameError:
        return False


def _twice(where: str, names: Sequence[str]) -> Iterator[Complaint]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield where, f"{name!r} stands there more than once"


def _tuning(tuning: TuningTable) -> Iterator[Complaint]:
    for name, wrong in option_complaints({**_named(tuning), **tuning.options}):
        yield key("tuning", name), wrong


def _named(table: TuningTable | SetTable) -> dict[str, str]:
    """Options that a table has chosen beside those of jobs."""
    return table.model_dump(include={"objective", "policy", "clocks"}, exclude_none=True)


def _sets(settings: Settings) -> Iterator[Complaint]:
    names = [group.name for group in settings.set]
    for number, group in enumerate(settings.set):
        if group.name in names[:number]:
            first = key("set", "", names.index(group.name))
            yield key("set", "name", number), f"{group.name!r} is the name of {first} already"
        yield from _set(number, group, settings)


def _set(number: int, group: SetTable, settings: Settings) -> Iterator[Complaint]:
    def where(name: str) -> str:
        return key("set", name, number)

    chosen = {**_named(group), **group.options}
    for name, wrong in option_complaints({"objective": settings.tuning.objective, **chosen}):
        if name in chosen:
            yield where(name), wrong
    yield from _twice(where("workloads"), group.workloads)
    for spec in group.workloads:
        if not _WORKLOAD.fullmatch(spec):
            right = "write a kernel and its sizes in ASCII without spaces, e.g. 'scan-lf:N=1024'"
            yield where("workloads"), f"{spec!r} is no workload; {right}"
    yield from _choices(where("devices"), group.devices, settings.service)


def _choices(where: str, specs: Sequence[str], service: ServiceTable) -> Iterator[Complaint]:
    """Yield errors in names of devices, and of kinds of them, that are to be among those of [service]."""
    named = [spec for spec in specs if DeviceChoice.parse(spec).one]
    yield from _devices(where, named)
    several = [spec for spec in specs if spec not in named]
    yield from ((where, wrong) for wrong in map(wrong_choice, several) if wrong)
    yield from _twice(where, several)
    for spec in named if service.devices else ():
        if spec not in service.devices:
            yield where, f"{spec!r} is none of [service] devices: {', '.join(service.devices)}"


def _windows(settings: Settings) -> Iterator[Complaint]:
    for number, window in enumerate(settings.window):
        yield from _choices(key("window", "devices", number), window.devices, settings.service)
        wrong = _cron(window.start)
        if wrong:
            yield key("window", "start", number), f"{window.start!r} {wrong}; {_CRON_HELP}"


def _cron(expression: str) -> str:
    """Return the error in a cron expression; empty if it is valid."""
    fields = len(expression.split())
    if fields != _CRON_FIELDS:
        return f"has {fields} fields, not {_CRON_FIELDS}"
    try:
        next(CronSim(expression, datetime.now().astimezone()))
    except CronSimError as error:
        return f"is no cron expression ({str(error).lower()})"
    except StopIteration:
        return "never comes"
    except (ValueError, RecursionError) as error:  # of numbers with thousands of digits, and of bare ones
        return f"is no cron expression ({error})"
    return ""


def _tcp(settings: Settings) -> Iterator[Complaint]:
    tcp = settings.tcp
    yield from _paths("tcp", (("token_file", tcp.token_file),))
    if tcp.token_file is not None and os.path.isdir(tcp.token_file):  # noqa: PTH112 - Path's may raise
        yield key("tcp", "token_file"), f"{tcp.token_file} is a directory; name a file in it"


def load(path: Path | None = None) -> Settings:
    """The settings of a file.

    Args:
        path: the file; None for the system's where there is one, else all defaults.

    Raises:
        InputError: it cannot be read, or holds what cannot be; one line per wrong key.
    """
    path = path or (SYSTEM_FILE if SYSTEM_FILE.exists() else None)
    return Settings() if path is None else parsed(read_text(path), path)


def parsed(text: str, path: Path) -> Settings:
    """The settings of a text.

    Raises:
        InputError: it holds what cannot be; one line per wrong key.
    """
    try:
        # as JSON: strict about types, and still a path is a text and a tuple a list there
        document = json.dumps(load_toml(text), default=_not_in_json)
    except ValueError as error:  # also of a number with thousands of digits
        raise InputError(f"{path}: not valid TOML: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path}: nested too deeply") from error
    try:
        settings = Settings.model_validate_json(document, strict=True)
    except ValidationError as error:
        raise InputError(_shown(path, text, _complaints_of(error))) from error
    wrong = complaints(settings)
    if wrong:
        raise InputError(_shown(path, text, wrong))
    return settings


def schema() -> dict[str, Any]:
    """JSON Schema of the file, with a description of every key."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Settings.model_json_schema(),
        "title": "daemon.toml",
    }


def _not_in_json(moment: object) -> dict[str, str]:
    """A date or time of TOML, as something that no key takes."""
    return {"a date or time": str(moment)}


def read_text(path: Path) -> str:
    """The text of the file.

    Raises:
        InputError: it cannot be read, or is too large or no text.
    """
    try:
        if path.exists() and not path.is_file():  # such as a pipe, which has no end
            raise InputError(f"{path}: is not a file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a character that no file name can have
        raise InputError(f"{path}: cannot be read: {error}") from error
    if len(raw) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES // 2**10} KiB")
    try:
        return raw.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from error


def _shown(path: Path, text: str, complaints: Sequence[Complaint]) -> str:
    """One line per wrong key: file, key, what is wrong, what would be right, and the line of the file."""
    numbers = [line_of(text, where) for where, _ in complaints[:MAX_SHOWN]]
    lines = [
        f"{path}: {where}: {message}" + (f" (line {number})" if number else "")
        for (where, message), number in zip_longest(complaints, numbers)
    ]
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"{path}: and {len(lines) - MAX_SHOWN} more"]
    return "\n".join(lines)


def _complaints_of(error: ValidationError) -> list[Complaint]:
    """Return the complaints of a validation error, without duplicates."""
    complaints = [_explained(detail) for detail in error.errors(include_url=False)]
    return list(dict.fromkeys(complaints))


def _explained(detail: Any) -> Complaint:  # noqa: ANN401 - a dict of pydantic
    table, *rest = detail["loc"] or ("",)
    model: type[BaseModel] | None = Settings
    number = None
    if rest:
        model = table_of(str(table))
    if table in _ARRAYS and rest and isinstance(rest[0], int):
        number, *rest = rest
    items = "".join(f", item {step + 1}" for step in rest[1:] if isinstance(step, int))
    where = key(str(table), f"{rest[0]}{items}" if rest else "", number)
    return where, _message(str(detail["loc"][-1]) if detail["loc"] else "", detail, model)


def _message(name: str, detail: Any, model: type[BaseModel] | None) -> str:  # noqa: ANN401 - a dict of pydantic
    kind, context = detail["type"], detail.get("ctx", {})
    broken = bound(kind, context)
    if broken:
        return f"{detail['input']} is out of range; {broken}"
    if kind in ("model_type", "tuple_type") and name in _ARRAYS:
        return f"must be tables of the form [[{name}]]"
    return _SIMPLE.get(kind) or messages.worded(name, detail, model)


def table_of(name: str) -> type[BaseModel] | None:
    """The model of a table of the file; None for a table that there is not."""
    field = Settings.model_fields.get(name)
    if field is None:
        return None
    inner = get_args(field.annotation)[:1] if get_origin(field.annotation) is tuple else (field.annotation,)
    return inner[0] if inner and isinstance(inner[0], type) and issubclass(inner[0], BaseModel) else None


# --- The last good ``daemon.toml``, kept in the state directory for a start that finds the file wrong.

NAME = "daemon.toml.good"

_MARK = "# The settings of the daemon that were in force last; checksum"
_MOST_BYTES = MAX_BYTES + 2**13
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_LOG = logging.getLogger(__name__)


class KeptSettings(NamedTuple):
    """Settings that were in force before.

    Attributes:
        at: when they were kept, UTC, to the second.
    """

    settings: Settings
    at: str


def keep(directory: Path, file: Path, text: str) -> None:
    """Keep the text of good settings; where that fails, those kept before stay."""
    copy = directory / NAME
    content = f"{_MARK} {_checksum(file, text)}\n{text}"
    try:
        if _read(copy) != content:
            replace_file(copy, content)
    except (OSError, ValueError) as error:
        _LOG.warning("%s: the settings in force cannot be kept there: %s", copy, error)


def kept_settings(directory: Path, file: Path) -> KeptSettings | None:
    """The settings that were kept of a file; None where there are none that can be trusted.

    They must be whole, of this file, and in a file that nobody else can write.
    """
    kept = directory / NAME
    why = f"it is not whole, or not of {file}"
    try:
        content = _read(kept)
        if content is None:
            return None
        first, _, text = content.partition("\n")
        if first == f"{_MARK} {_checksum(file, text)}":
            at = datetime.fromtimestamp(kept.stat().st_mtime, timezone.utc)
            return KeptSettings(parsed(text, kept), f"{at:%Y-%m-%d %H:%M:%S} UTC")
    except (OSError, ValueError, InputError) as error:
        why = str(error)
    _LOG.warning("%s is not used: %s", kept, why)
    return None


def _checksum(file: Path, text: str) -> str:
    return hashlib.blake2b(f"{file.absolute()}\n{text}".encode(), digest_size=16).hexdigest()


def _read(path: Path) -> str | None:
    """The text of a file that only root and this user can write; None where there is none.

    Raises:
        OSError: it cannot be read.
        ValueError: others can write it, or it is no text.
    """
    owners = (0, os.geteuid())
    try:
        folder = path.parent.stat()
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        for name, owned in ((path, status), (path.parent, folder)):
            if owned.st_uid not in owners or owned.st_mode & _WRITABLE_BY_OTHERS:
                raise ValueError(f"{name} belongs to another user, or others can write it")
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no file")
        raw = file.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise ValueError("it is too large")
    return raw.decode()


# --- The ``[service]`` table alone, for commands that only look for the daemon.

_SERVICE = "service"


def service_table(path: Path | None) -> ServiceTable:
    """The table ``[service]`` of a file that may be wrong elsewhere; its defaults where it is wrong."""
    try:
        text = "" if path is None else path.read_text("utf-8-sig", errors="replace")
    except (OSError, ValueError):
        return ServiceTable()
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith("["):  # of a table, or meant to be
            header = HEADER.match(line)
            inside = header is not None and header[1] == _SERVICE
        lines += [line] if inside else []
    try:
        table = tomllib.loads("\n".join(lines)).get(_SERVICE, {})
        return ServiceTable.model_validate_json(json.dumps(table), strict=True)
    except (ValueError, TypeError, RecursionError, ValidationError):
        return ServiceTable()
