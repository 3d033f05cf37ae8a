"""Reads and checks a sweep file: one line per wrong key, with what would be right."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from tuner.kernel_files import document as messages
from tuner.model.errors import InputError, suggestion
from tuner.model.objective import NAMES
from tuner.model.options import OPTIONS
from tuner.search.option_checks import complaints as option_complaints
from tuner.sweep.jobs import MOST_JOBS, SweepJob, count, is_excluded, jobs_of, listed, options_of, shown
from tuner.sweep.tables import GroupTable, SweepDocument, SweepTable
from tuner.untrusted.files import read_text
from tuner.untrusted.reading import load_toml
from tuner.untrusted.toml_lines import line_of

Complaint = tuple[str, str]
"""A key as the file writes it, and what is wrong with it."""

MAX_BYTES = 2**20
_MAX_SHOWN = 10
_CHOICES = ("sizes", "options", "exclude")  # tables whose keys are the user's
_OPTION_NAMES = [name for name in OPTIONS if name != "objective"]
_WRONG_CHOICE = "must be a number, a text, true or false, or a list of at least one of these"


@dataclass(frozen=True)
class SweepFile:
    """A sweep file that was read.

    Attributes:
        path: of the file.
        text: of the file, for the lines of keys.
        jobs: in the order of the file, each once.
        excluded: how many jobs its exclusions leave out.
        repeated: how many jobs ask for what an earlier one asks for.
        kernel_files: beside the catalogue.
    """

    path: Path
    text: str
    description: str
    jobs: tuple[SweepJob, ...]
    excluded: int
    repeated: int
    kernel_files: tuple[Path, ...]

    def refused(self, complaints: Sequence[Complaint]) -> InputError:
        """The error for what a device or a catalogue says of keys of the file."""
        return InputError(_told(self.path, self.text, list(dict.fromkeys(complaints))))


def read_sweep(path: Path) -> SweepFile:
    """The jobs of a sweep file.

    Raises:
        InputError: it cannot be read, is no TOML, or holds what cannot be; one line per wrong key.
    """
    try:
        text = read_text(path, MAX_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    return parsed(text, path)


def parsed(text: str, path: Path) -> SweepFile:
    """The jobs of the text of a sweep file.

    Args:
        text: TOML.
        path: of the file, for messages and for the kernel files that it names.

    Raises:
        InputError: as ``read_sweep``.
    """
    try:
        # as JSON: strict about types, and still a list is a tuple there
        document = json.dumps(load_toml(text), default=lambda moment: {"a date or time": str(moment)})
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid TOML: {error}") from error
    try:
        read = SweepDocument.model_validate_json(document, strict=True)
    except ValidationError as error:
        raise InputError(_told(path, text, _complaints_of(error))) from error
    wrong = list(_complaints(read))
    if wrong:
        raise InputError(_told(path, text, list(dict.fromkeys(wrong))))
    return _expanded(read, path, text)


def place(number: int, name: str = "") -> str:
    """A key of a group as messages write it, such as ``[[group]] 2 sizes``; numbers count from 0."""
    return f"[[group]] {number + 1} {name}".rstrip()


# --- jobs ----------------------------------------------------------------------------------------


def _expanded(document: SweepDocument, path: Path, text: str) -> SweepFile:
    jobs: dict[str, SweepJob] = {}
    excluded = repeated = 0
    wrong: list[Complaint] = []
    for number, group in enumerate(document.group):
        unused = set(range(len(group.exclude)))
        for job in jobs_of(group, document, place(number)):
            matched = is_excluded(job, group.exclude)
            unused.difference_update(matched)
            excluded += bool(matched)
            if not matched:
                repeated += job.key in jobs
                jobs.setdefault(job.key, job)
        wrong += [
            (place(number, f"exclude, item {one + 1}"), "no job of the group has these values; correct them")
            for one in sorted(unused)
        ]
    if wrong:
        raise InputError(_told(path, text, wrong))
    if not jobs:
        raise InputError(f"{path}: its exclusions leave no job")
    kernel_files = tuple(path.parent / one for one in document.sweep.kernel_files)
    wrong = [
        (
            f"[sweep] kernel_files, item {number}",
            f"{file}: there is no such file; name it relative to this file",
        )
        for number, file in enumerate(kernel_files, start=1)
        if not file.is_file()
    ]
    if wrong:
        raise InputError(_told(path, text, wrong))
    description = document.sweep.description
    return SweepFile(path, text, description, tuple(jobs.values()), excluded, repeated, kernel_files)


# --- what cannot be ------------------------------------------------------------------------------


def _complaints(document: SweepDocument) -> Iterator[Complaint]:
    yield from _options(document.options, "[options]", ("energy",))
    names = [group.name for group in document.group]
    for number, group in enumerate(document.group):
        if group.name in names[:number]:
            first = place(names.index(group.name))
            yield place(number, "name"), f"{group.name!r} is the name of {first} already"
        yield from _group(number, group, document)
    total = sum(count(group, document) for group in document.group)
    if total > MOST_JOBS:
        yield "[[group]]", f"{total:,} jobs; at most {MOST_JOBS:,}: shorten the lists, or split the file"


def _group(number: int, group: GroupTable, document: SweepDocument) -> Iterator[Complaint]:
    if group.kernels is None and group.workloads is None:
        yield place(number), "kernels or workloads are needed"
    if group.sizes and group.kernels is None:
        yield place(number, "sizes"), "are those of kernels; write the sizes of workloads into their names"
    for objective in group.objectives:
        if objective not in NAMES:
            near = suggestion(objective, NAMES)
            yield place(number, "objectives"), f"unknown {objective!r}; choose from {', '.join(NAMES)}{near}"
    chosen = options_of(group, document)
    own = {name: chosen[name] for name in group.options}
    yield from _options(own, place(number, "options"), group.objectives)
    known = {"kernel", "device", "objective", *group.sizes, *(name for name in chosen)}
    for item, exclusion in enumerate(group.exclude):
        here = place(number, f"exclude, item {item + 1}")
        if not exclusion:
            yield here, "is empty, and would leave out every job"
        for name in exclusion:
            if name not in known and group.workloads is None:
                names = ", ".join(sorted(known))
                yield here, f"unknown key {name!r}{suggestion(name, known)}; known here: {names}"


def _options(chosen: Mapping[str, Any], where: str, objectives: Sequence[str]) -> Iterator[Complaint]:
    comma = ", " if where.startswith("[[") else " "
    for name, choice in chosen.items():
        key = f"{where}{comma}{name}"
        if name == "objective":
            yield key, "write objectives = [...] in [[group]]"
        elif name == "device":
            yield key, "write devices = [...] in [[group]]"
        elif name not in OPTIONS:
            near = suggestion(name, _OPTION_NAMES)
            yield key, f"unknown option{near}; known here: {', '.join(_OPTION_NAMES)}"
        else:
            for value, objective in ((one, other) for one in listed(choice) for other in objectives):
                found = option_complaints({"objective": objective, name: value})
                yield from ((key, wrong) for _, wrong in found if objective in NAMES)
            values = [shown(value) for value in listed(choice)]
            if len(set(values)) < len(values):
                yield key, "holds a value more than once"


# --- messages ------------------------------------------------------------------------------------


def _told(path: Path, text: str, complaints: Sequence[Complaint]) -> str:
    """One line per wrong key: file, key, what is wrong, what would be right, and the line of the file."""
    lines = []
    for key, message in complaints[:_MAX_SHOWN]:
        number = line_of(text, key)
        lines.append(f"{path}: {key}: {message}" + (f" (line {number})" if number else ""))
    if len(complaints) > _MAX_SHOWN:
        lines.append(f"{path}: and {len(complaints) - _MAX_SHOWN} more")
    return "\n".join(lines)


def _complaints_of(error: ValidationError) -> list[Complaint]:
    """What the validation of the form found; a list of groups that are wrong is not too short beside."""
    details = error.errors(include_url=False)
    groups = any(len(detail["loc"]) > 1 and detail["loc"][0] == "group" for detail in details)
    kept = (detail for detail in details if not (groups and detail["loc"] == ("group",)))
    return list(dict.fromkeys(map(_explained, kept)))


def _explained(detail: Any) -> Complaint:  # noqa: ANN401 - a dict of pydantic
    """What is wrong with the form of one key."""
    table, *rest = detail["loc"] or ("",)
    tables: dict[str, type[BaseModel]] = {"sweep": SweepTable, "group": GroupTable}
    model = tables.get(str(table), SweepDocument)
    where = f"[{table}]"
    if table == "group" and rest and isinstance(rest[0], int):
        where, rest = place(rest[0]), rest[1:]
    elif table == "group":
        return "[[group]]", "is needed: tables of the form [[group]] hold the jobs"
    elif not rest and detail["type"] == "extra_forbidden":
        return str(table), messages.worded(str(table), detail, SweepDocument)
    if table == "options" or (rest and rest[0] in _CHOICES):
        names = [f"item {step + 1}" if isinstance(step, int) else str(step) for step in rest[:2]]
        inner = ", ".join(names) if table == "group" else " ".join(names[:1])
        whole = "must be a table" if len(rest) < 2 and table == "group" else _WRONG_CHOICE  # noqa: PLR2004 - name and key
        return f"{where} {inner}".rstrip(), whole
    name = f" {rest[0]}" if rest else ""
    items = "".join(f", item {step + 1}" for step in rest[1:] if isinstance(step, int))
    return f"{where}{name}{items}", _worded(str(detail["loc"][-1]), detail, model)


def _worded(name: str, detail: Any, model: type[BaseModel]) -> str:  # noqa: ANN401 - a dict of pydantic
    return "must be a list" if detail["type"] == "tuple_type" else messages.worded(name, detail, model)
