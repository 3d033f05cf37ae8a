"""Sweep files: keys, checks, and the jobs that they stand for."""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tuner.kernel_files import kernel_document as messages
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import InputError, KernelFileError, suggestion
from tuner.model.objective import NAMES, described
from tuner.model.options import OPTIONS
from tuner.model.records import WorkloadName
from tuner.model.typed import canonical
from tuner.search.option_checks import complaints as option_complaints
from tuner.system.untrusted.reading import line_of, load_toml, plain_line, read_text

# --- The tables and keys of a sweep file; ``file`` reads and checks them.

Value = bool | int | float | str
"""One value of a size or an option."""

Choice = Value | Annotated[tuple[Value, ...], Field(min_length=1)]
"""A value, or a list of which every job has one."""

Texts = Annotated[tuple[str, ...], Field(min_length=1)]


class SweepFileTable(BaseModel):
    """A table of the file; a key that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SweepTable(SweepFileTable):
    """Keys for the whole sweep."""

    description: str = Field(default="", description="For people.")
    kernel_files: tuple[str, ...] = Field(
        default=(),
        description="Kernel files beside the catalogue, relative to this file; not with the daemon, which"
        " reads its own directories.",
    )


class GroupTable(SweepFileTable):
    """Jobs: every kernel at every size, with every objective, device and option, and workloads as written."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="For people; each once.")
    kernels: Texts | None = Field(default=None, description="Names of kernels, each tuned at every size.")
    sizes: dict[str, Choice] = Field(
        default={},
        description="Sizes of the kernels by name, batch and data types too: a value, or a list of values;"
        " without any those that the kernel files list.",
    )
    workloads: Annotated[tuple[str | Texts, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="Workloads as `tuner run` takes them; a list in the list runs together on one GPU.",
    )
    objectives: Texts = Field(
        default=("time",), description="time, energy, edp, ed2p, pareto: a job for each."
    )
    devices: Texts = Field(
        default=("",),
        description="As --device takes them, and kinds, such as kind:NVIDIA H200: a job for each.",
    )
    options: dict[str, Choice] = Field(
        default={},
        description="Options of `tuner run` by name, before those of [options]; lists as in sizes.",
    )
    exclude: tuple[dict[str, Choice], ...] = Field(
        default=(),
        description="Jobs that are left out: kernel, device, objective, sizes or options with a value or a"
        " list of values; a job that has one of each is left out.",
    )


class SweepDocument(SweepFileTable):
    """A sweep file."""

    sweep: SweepTable = SweepTable()
    options: dict[str, Choice] = Field(
        default={}, description="Options of all groups: those of `tuner run` by name."
    )
    group: Annotated[tuple[GroupTable, ...], Field(min_length=1)] = Field(description="Groups of jobs.")


# --- The jobs of a sweep: every combination of what its groups list.

MOST_JOBS = 100_000
"""Of one file; more are a mistake in a list, or several sweeps."""


@dataclass(frozen=True)
class SweepJob:
    """One search of a sweep.

    Attributes:
        group: name of its group.
        workloads: that run together.
        device: empty for the first.
        options: those that the file chooses, beside the objective.
        place: of its group in the file, for messages.
    """

    group: str
    workloads: tuple[str, ...]
    objective: str = "time"
    device: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""

    @property
    def key(self) -> str:
        """The same text for jobs that ask for the same search."""
        return canonical([sorted(self.workloads), self.objective, self.device, dict(self.options)])

    @property
    def goal(self) -> str:
        """The objective, with the timing where it is not the default one."""
        return described(self.objective, None, timing=self.options.get("timing"))

    @property
    def title(self) -> str:
        """The job in a line."""
        chosen = [f"{OPTIONS[name].flag} {shown(value)}" for name, value in self.options.items()]
        where = [f"on {self.device}"] if self.device else []
        return plain_line(" ".join([*self.workloads, self.objective, *where, *chosen]))

    def attributes(self) -> dict[str, set[str]]:
        """Return the names that exclusions are matched with, each with the values that the job has of it."""
        found: dict[str, set[str]] = {"objective": {self.objective}, "device": {self.device}, "kernel": set()}
        for text in self.workloads:
            name = WorkloadName.parse(text)
            found["kernel"].add(name.kernel)
            pairs = [*name.sizes, *([] if name.batch is None else [("batch", name.batch)])]
            for size, value in pairs:
                found.setdefault(size, set()).add(value)
        for option, value in self.options.items():
            found.setdefault(option, set()).add(shown(value))
        return found


def shown(value: Value) -> str:
    """A value of TOML as workloads and messages write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def listed(choice: Choice) -> tuple[Value, ...]:
    """The values of a choice."""
    return choice if isinstance(choice, tuple) else (choice,)


def options_of(group: GroupTable, document: SweepDocument) -> dict[str, Choice]:
    """The options of a group, those of all groups included."""
    return {**document.options, **group.options}


def count(group: GroupTable, document: SweepDocument) -> int:
    """Return the number of jobs of a group, before exclusions; nothing is built."""
    sized = math.prod(len(listed(choice)) for choice in group.sizes.values()) * len(group.kernels or ())
    beside = math.prod(len(listed(choice)) for choice in options_of(group, document).values())
    return (sized + len(group.workloads or ())) * beside * len(group.objectives) * len(group.devices)


def jobs_of(
    group: GroupTable,
    document: SweepDocument,
    place: str,
    listed_sizes: Callable[[str], Sequence[str]] = lambda kernel: (kernel,),
) -> Iterator[SweepJob]:
    """The jobs of a group, before exclusions, in the order of the file.

    Args:
        group: of the file.
        document: the file.
        place: of the group, for messages.
        listed_sizes: workloads that a kernel stands for where the group names no sizes.
    """
    for device, objective in itertools.product(group.devices, group.objectives):
        for workloads in _workloads(group, listed_sizes):
            for options in _combinations(options_of(group, document)):
                yield SweepJob(group.name, workloads, objective, device, options, place)


def is_excluded(job: SweepJob, exclude: Sequence[Mapping[str, Choice]]) -> list[int]:
    """Which exclusions leave a job out, counted from 0."""
    has = job.attributes()
    return [number for number, one in enumerate(exclude) if _matches(has, one)]


def _matches(has: Mapping[str, set[str]], exclusion: Mapping[str, Choice]) -> bool:
    return all(
        has.get(name, set()) & {shown(value) for value in listed(choice)}
        for name, choice in exclusion.items()
    )


def _workloads(group: GroupTable, listed_sizes: Callable[[str], Sequence[str]]) -> Iterator[tuple[str, ...]]:
    for kernel in group.kernels or ():
        if not group.sizes and ":" not in kernel:
            yield from ((one,) for one in listed_sizes(kernel))
            continue
        for sizes in _combinations(group.sizes):
            pairs = ",".join(f"{name}={shown(value)}" for name, value in sizes.items())
            yield (f"{kernel}:{pairs}" if pairs else kernel,)
    for one in group.workloads or ():
        yield (one,) if isinstance(one, str) else one


def _combinations(choices: Mapping[str, Choice]) -> Iterator[dict[str, Value]]:
    """Each name with one of its values, in every combination; the first name moves slowest."""
    for values in itertools.product(*map(listed, choices.values())):
        yield dict(zip(choices, values, strict=True))


# --- A sweep file, read and checked.

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
    listed_sizes = partial(_listed_sizes, cache(lambda: Catalog.load(kernel_files)))
    jobs: dict[str, SweepJob] = {}
    excluded = repeated = 0
    for number, group in enumerate(document.group):
        unused = set(range(len(group.exclude)))
        for job in jobs_of(group, document, place(number), listed_sizes):
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
    description = document.sweep.description
    return SweepFile(path, text, description, tuple(jobs.values()), excluded, repeated, kernel_files)


def _listed_sizes(catalog: Callable[[], Catalog], kernel: str) -> list[str]:
    """The workloads that a kernel file lists; of one that is not here or has ranges, the kernel as it is."""
    try:
        found = catalog().kernels.get(kernel)
    except KernelFileError:  # which is told when the jobs are checked
        found = None
    if found is None or any(isinstance(values, range) for values in found.sizes.values()):
        return [kernel]
    return [found.spec_of(workload) for workload in found.workloads()]


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
    """Return the complaints of a validation; if groups are wrong, none about the list of groups."""
    details = error.errors(include_url=False)
    groups = any(len(detail["loc"]) > 1 and detail["loc"][0] == "group" for detail in details)
    kept = (detail for detail in details if not (groups and detail["loc"] == ("group",)))
    return list(dict.fromkeys(map(_explained, kept)))


def _explained(detail: Any) -> Complaint:  # noqa: ANN401 - a dict of pydantic
    """Return the place and the error message for a key whose form is wrong."""
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
