"""A launch of an autotuned function of Triton as a problem to tune: its name, its answer, its kernel file."""

import hashlib
import inspect
import itertools
import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tuner.compiler.triton_server import INSIDE
from tuner.database.answer_lock import LockInForce, as_stored, in_force, of_gpu
from tuner.database.answers import StoredAnswer
from tuner.database.best_known import DatabaseSource
from tuner.database.connection import default_path
from tuner.database.ranking import AnswerQuery, passed_over, served_answer
from tuner.database.runs import Store
from tuner.devices.choice import identify
from tuner.devices.cuda.probe import driver_problem, gpus
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.pragmas.expansion import toml_text
from tuner.model.errors import DeviceUnavailableError, InputError, suggestion
from tuner.model.jobs import DeviceIdentity
from tuner.model.options import SearchOptions
from tuner.model.plan import TunableValue, Workload
from tuner.python.arguments import ArrayArgument, copied_to_host, is_array, is_bfloat16
from tuner.python.kernel import Kernel, tunables_of
from tuner.python.triton import config_values
from tuner.python.tuning import tune

VARIABLE = "TUNER_TRITON"
MODES = ("lookup", "tune", "record")
FOLDER = "tuner-triton"  # where ``record`` writes, unless the mode names another folder

_LOG = logging.getLogger("tuner.triton")
_told: set[str] = set()
_ALIGNED = 16  # bytes
_MOST = 800  # characters of an expression, which may have 1,000 and 60 levels
_AXES = 3


def tell(text: str) -> None:
    """Say what the caller should know, once."""
    if text not in _told:
        _told.add(text)
        _LOG.warning("%s", text)


def mode_of(given: str | None) -> tuple[str, Path]:
    """The mode, and the folder of records.

    Args:
        given: as the caller says it; None for what the environment says.

    Raises:
        InputError: there is no such mode.
    """
    if INSIDE in os.environ:  # a process that compiles imports the caller's file, and must not tune
        given = MODES[0]
    given = given or os.environ.get(VARIABLE) or MODES[0]
    mode, colon, folder = given.partition(":")
    if mode not in MODES or (colon and (mode != "record" or not folder)):
        raise InputError(
            f"mode (or {VARIABLE}): {given!r}: choose from {', '.join(MODES)} or record:FOLDER"
            f"{suggestion(mode, MODES)}"
        )
    return mode, Path(folder or FOLDER).absolute()


def check_options(given: Mapping[str, Any], theirs: Iterable[str] = ()) -> None:
    """Refuse what no search takes.

    Args:
        given: options of the caller.
        theirs: names that he may have meant as well.

    Raises:
        InputError: an option is unknown.
    """
    own = {*inspect.signature(tune).parameters, *(one.name for one in fields(SearchOptions))}
    known = own - {"kernels", "tunables", "restrictions", "on", "kernel_files", "options"}
    for name in given:
        if name not in known:
            raise InputError(f"autotune: unknown option {name!r}{suggestion(name, [*known, *theirs])}")


@dataclass(frozen=True)
class Launch:
    """A launch that is to get a configuration.

    Attributes:
        name: of the function.
        arguments: by name; options of Triton, too.
        grid: programs, or a function of all arguments.
        options: of ``tuner.tune``.
    """

    name: str
    arguments: Mapping[str, Any]
    grid: Any
    options: Mapping[str, Any]

    def device(self) -> str:
        """The device that was named, else the GPU that the first tensor is on."""
        if self.options.get("device") is not None:
            return str(self.options["device"])
        devices = [getattr(value, "device", None) for value in self.arguments.values()]
        numbers = (getattr(one, "index", None) for one in devices)
        return f"cuda:{next((one for one in numbers if type(one) is int), 0)}"

    @property
    def objectives(self) -> tuple[str, str]:
        """The objective that is asked for, then any."""
        return str(self.options.get("objective", "time")), ""

    def database(self) -> Path:
        """The database of answers."""
        return Path(self.options.get("database") or os.environ.get("TUNER_DATABASE") or default_path())

    def programs(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        """The grid in a configuration.

        Raises:
            InputError: it cannot be evaluated, or is none.
        """
        try:
            grid = self.grid({**self.arguments, **values}) if callable(self.grid) else self.grid
            found = tuple(int(one) for one in (grid if isinstance(grid, tuple | list) else (grid,)))
        except Exception as error:  # a function of the user's may raise anything
            raise InputError(f"grid: raises {type(error).__name__}: {error}") from error
        if not 1 <= len(found) <= _AXES:
            raise InputError(f"grid: has {len(found)} axes; one to three are possible")
        return found


def argument_text(name: str, value: Any, *, exact: bool, typed: bool) -> str:  # noqa: ANN401 - the caller's
    """An argument as far as an answer depends on it.

    Args:
        name: of the parameter.
        value: the argument.
        exact: its value counts.
        typed: its type alone counts; else also what Triton compiles in of it.
    """
    if hasattr(value, "data_ptr"):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{name}: *{kind}" + ("" if typed or value.data_ptr() % _ALIGNED == 0 else ", not aligned")
    if exact or type(value) is not int:
        return f"{name} = {value!r}" if exact else f"{name}: {type(value).__name__}"
    width = 32 if -(2**31) <= value < 2**31 else 64 if value < 2**63 else "64, unsigned"
    known = "" if typed else ", 1" if value == 1 else f", of {_ALIGNED}" if value % _ALIGNED == 0 else ""
    return f"{name}: int{width}{known}"


def problem_name(function: str, texts: Sequence[str]) -> str:
    """The name of the problem in the database: other code, or arguments of another kind, are another one."""
    stem = "".join(letter if letter.isalnum() else "-" for letter in function.lower()).strip("-")
    return f"{stem[:40] or 'kernel'}-{hashlib.sha256(chr(0).join(texts).encode()).hexdigest()[:12]}"


# --- The answer of the database.


@cache
def _identity(spec: str) -> DeviceIdentity:
    """The device of this process."""
    if not spec.startswith("cuda:"):
        return identify(spec)
    problem = driver_problem()
    found = [] if problem else gpus()
    index = int(spec.partition(":")[2]) if spec.partition(":")[2].isdecimal() else 0
    if index >= len(found):
        raise DeviceUnavailableError(f"{spec}: {problem or 'no such GPU answers'}")
    return found[index]


def stored_values(problem: str, launch: Launch, *, needed: bool) -> dict[str, TunableValue] | None:
    """The answer of a problem on this device: that of the lock file in force, else the newest fresh one.

    One for the objective that is asked for goes before any other.

    Args:
        problem: its name.
        launch: says the device and the database.
        needed: there should be a database.

    Raises:
        InputError: there is no database where one is needed.
        StoreError: it cannot be read.
        DeviceUnavailableError: no GPU answers.
    """
    device, path = _identity(launch.device()), launch.database()
    lock = in_force()
    locked = None if lock is None else _locked(lock, problem, launch, device)
    if locked is not None:
        return locked
    if not path.exists():
        if needed:
            raise InputError(f"there is no database {path}; tune first, or name it by TUNER_DATABASE")
        return None
    with Store(path) as store:
        answers = sorted(DatabaseSource(store).of_set([problem]), key=lambda one: -one.run)
    workload = Workload(problem, (), 1)
    for objective in launch.objectives:
        for answer in answers:
            served = served_answer(_query(workload, objective, device, answer), [answer], fresh=True)
            if served is not None:
                return dict(served.configurations[problem].items())
    for answer in answers[:1]:
        for why in passed_over(_query(workload, "", device, answer), [answer], None):
            _LOG.warning("%s", why)
    return None


def _locked(
    lock: LockInForce, problem: str, launch: Launch, device: DeviceIdentity
) -> dict[str, TunableValue] | None:
    workload = Workload(problem, (), 1)
    told = dict[str, None]()
    for objective in launch.objectives:
        for one in of_gpu(lock.of_set([problem]), device, as_found=True):
            query = _query(workload, objective, device, as_stored(one, device))
            served, reasons = replace(lock, lock=replace(lock.lock, answers=(one,))).served(query)
            if served is not None:
                return dict(served.configurations[problem].items())
            told |= dict.fromkeys(reasons)
    for why in told:
        _LOG.warning("%s", why)
    return None


def _query(workload: Workload, objective: str, device: DeviceIdentity, answer: StoredAnswer) -> AnswerQuery:
    """A question for an answer: the name of the problem stands for its sources, and NVRTC makes no code."""
    conditions = answer.conditions
    return AnswerQuery(
        workloads=(workload,),
        kernels={},
        sources=conditions["sources"],
        objective=objective,
        device=replace(device, runtime=str(conditions["device"].get("runtime", ""))),
        clocks_as_found=True,
        any_timing=True,
    )


# --- The launch as a kernel to tune: now, with its own arguments, or later, from a file.


class Problem(Kernel):
    """A launch as ``tuner.tune`` takes it, with copies of its arguments.

    Args:
        name: see ``problem_name``.
        function: the autotuner, with the configurations that may be tried.
        launch: the launch.
        grid: expressions in the place of the grid of the launch; None for that.

    Raises:
        InputError: the function has hooks, or an argument cannot be handed over.
    """

    def __init__(
        self,
        name: str,
        function: Any,  # noqa: ANN401 - Triton has no types
        launch: Launch,
        grid: Sequence[int | str] | None = None,
    ) -> None:
        arguments = {one: _in_memory(one, value) for one, value in launch.arguments.items()}
        (first, *_) = config_values(function.configs)
        launch.programs(first)
        super().__init__(
            function,
            arguments=arguments,
            grid=[_Axis(launch, axis) for axis in range(_AXES)] if grid is None else grid,
            outputs=[one for one in function.reset_to_zero if arguments.get(one) is not None],
            default=first,
        )
        self.name = name
        self._sizes = {}  # the name says which problem it is

    def document(self) -> dict[str, Any]:
        """The tables of a kernel file that stands beside no source; no array has an input."""
        rules = [one for one in self._space.restrictions if isinstance(one, str)]
        document = self._document(None, tunables_of(self._space.tunables), rules, {})
        return document | {"kernel": document["kernel"] | {"source": self.source.path}}

    @property
    def product(self) -> int:
        """Configurations that its tunables could make."""
        return math.prod(map(len, self._space.tunables.values()))


class _Axis:
    """One axis of the grid, as a function of the configuration."""

    def __init__(self, launch: Launch, axis: int) -> None:
        self._launch, self._axis = launch, axis

    def __call__(self, values: Mapping[str, Any]) -> int:
        """Return its programs."""
        return (*self._launch.programs(values), 1, 1)[self._axis]


def _in_memory(name: str, value: Any) -> Any:  # noqa: ANN401 - the caller's
    """An array as it lies in memory: of one axis, where it has none or is not contiguous."""
    if not hasattr(value, "data_ptr"):
        return value
    if value.data_ptr() % _ALIGNED:
        raise InputError(
            f"{name} does not begin at a multiple of {_ALIGNED} bytes, and is tuned as if it did"
        )
    if not value.shape:  # a number on the GPU, which Triton takes by its address
        return value.reshape((1,))
    if not hasattr(value, "is_contiguous") or value.is_contiguous():
        return value
    steps = zip(value.shape, value.stride(), strict=True)
    return value.as_strided((1 + sum((size - 1) * step for size, step in steps),), (1,))


def recorded_or_tuned(
    problem: str,
    function: Any,  # noqa: ANN401 - Triton has no types
    launch: Launch,
    mode: str,
    folder: Path,
) -> Mapping[str, TunableValue] | None:
    """Write a launch that has no answer into a folder, in mode ``record``; else the answer of a search.

    Raises:
        TunerError: see ``Problem``, and ``tuner.tune``.
        OSError: it cannot be written.
    """
    if mode == "record":
        as_recorded(problem, function, launch, folder)
        return None
    given = {"progress": False, **launch.options}
    given |= {"device": launch.device(), "database": launch.database()}
    return tune(Problem(problem, function, launch), **given).best


def as_recorded(problem: str, function: Any, launch: Launch, folder: Path) -> None:  # noqa: ANN401 - same
    """Write a kernel file of the launch, and a sweep of all kernel files of the folder.

    Whole numbers in arrays are kept, as they may be indices; fractions are drawn anew.

    Raises:
        InputError: see ``Problem``; or the folder has another sweep.
        OSError: it cannot be written.
    """
    path, sweep = folder / f"{problem}.toml", folder / _SWEEP
    if path.exists():
        return
    if sweep.exists() and _DESCRIBED not in sweep.read_text(encoding="utf-8", errors="replace"):
        raise InputError(f"{sweep} is none of recorded launches; name another folder: record:FOLDER")
    shaped = {name: _shape(_in_memory(name, value)) for name, value in launch.arguments.items()}
    configs = config_values(function.configs)
    derived: dict[str, str] = {}
    grids = [(*launch.programs(one), 1, 1)[:_AXES] for one in configs]
    grid = [
        _table(f"programs_{axis}", configs, [one[axis] for one in grids], derived) for axis in range(_AXES)
    ]
    kernel = Problem(problem, function, replace(launch, arguments=shaped), grid)
    document = kernel.document()
    if len(configs) < kernel.product:
        listed = _table("listed", configs, [1] * len(configs), derived, other=0)
        document["constraints"]["rules"].append(f"{listed} == 1")
    document["derived"] |= derived
    folder.mkdir(parents=True, exist_ok=True)
    for argument in document["argument"]:
        if argument.get("role") in ("in", "inout"):
            argument["input"] = _input(folder, problem, argument, kernel)
    write_at_once(path, f"# {launch.name}, {_MARK}\n\n{toml_text(document)}")
    try:
        file = load_kernel_file(path)
        (workload,) = file.workloads()
        file.plan(workload, file.default(workload))
    except InputError:
        path.unlink(missing_ok=True)  # no sweep stops at it
        raise
    _write_sweep(folder, launch.options)


def _shape(value: Any) -> Any:  # noqa: ANN401 - the caller's
    """An array without its fractions, which are not copied; one of whole numbers as it is."""
    if not hasattr(value, "data_ptr"):
        return value
    if is_bfloat16(value):
        return value.new_zeros(tuple(value.shape), device="cpu")
    try:
        dtype = np.dtype(str(value.dtype).removeprefix("torch."))
    except TypeError:
        return value
    if dtype.kind != "f" and is_array(value):
        return copied_to_host(value)
    return np.zeros(tuple(value.shape), dtype)


def _input(folder: Path, problem: str, argument: Mapping[str, Any], kernel: Kernel) -> str:
    array = next(
        one for one in kernel.arguments if isinstance(one, ArrayArgument) and one.name == argument["buffer"]
    )
    if array.bits or array.values.dtype.kind == "f":
        return "normal(0, 1)"
    name = f"{problem}-{array.name}.npy"
    np.save(folder / name, array.values, allow_pickle=False)
    return f'file("{name}")'


def _table(
    name: str,
    configs: Sequence[Mapping[str, Any]],
    results: Sequence[int],
    derived: dict[str, str],
    other: int | None = None,
) -> int | str:
    """An expression for the result of each configuration, over as few tunables as decide it.

    Args:
        name: of the expressions that are added.
        configs: the configurations.
        results: theirs.
        derived: expressions by name.
        other: result of all other configurations; None where it does not matter.
    """
    if other is None and len(set(results)) == 1:
        return results[0]
    varied = [each for each in configs[0] if len({one[each] for one in configs}) > 1]
    names = _deciding(configs, varied, results) if other is None else varied
    cases = {tuple(one[each] for each in names): value for one, value in zip(configs, results, strict=True)}
    last: int | str = results[0] if other is None else other
    for number, some in enumerate(
        _groups([f"{cases[one]} if {_condition(names, one)} else" for one in cases])
    ):
        text, last = " ".join([*some, str(last)]), f"{name}_{number}"
        derived[last] = text
    return last


def _groups(texts: Sequence[str]) -> Iterator[list[str]]:
    """Texts in groups that an expression has room for; one that is too long stands alone."""
    group: list[str] = []
    for text in texts:
        if group and sum(map(len, [*group, text])) + len(group) > _MOST:
            yield group
            group = []
        group.append(text)
    yield group


def _deciding(
    configs: Sequence[Mapping[str, Any]], varied: Sequence[str], results: Sequence[int]
) -> list[str]:
    """The fewest tunables whose values decide the results."""
    for count in range(1, len(varied)):
        for names in itertools.combinations(varied, count):
            found: dict[tuple[Any, ...], int] = {}
            pairs = zip(configs, results, strict=True)
            keyed = ((tuple(one[each] for each in names), value) for one, value in pairs)
            if all(found.setdefault(key, value) == value for key, value in keyed):
                return list(names)
    return list(varied)


def _condition(names: Sequence[str], values: Sequence[Any]) -> str:
    def one(name: str, value: Any) -> str:  # noqa: ANN401 - of a tunable
        if isinstance(value, bool):
            return name if value else f"not {name}"
        return f"{name} == {value!r}"

    return " and ".join(map(one, names, values))


def write_at_once(path: Path, text: str) -> None:
    """Write a file at once: other processes may record, too."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


_SWEEP = "sweep.toml"
_DESCRIBED = "Launches of Triton that were recorded"
_MARK = "as it was launched; written by tuner.triton"


def _write_sweep(folder: Path, options: Mapping[str, Any]) -> None:
    paths = [one for one in folder.glob("*.toml") if one.name != _SWEEP]
    files = sorted(one.name for one in paths if _MARK in one.read_text(encoding="utf-8", errors="replace"))
    group: dict[str, Any] = {"name": "recorded", "kernels": [Path(one).stem for one in files]}
    group |= {f"{key}s": [options[key]] for key in ("device", "objective") if options.get(key)}
    head: dict[str, Any] = {"description": _DESCRIBED, "kernel_files": files}
    own = {one.name for one in fields(SearchOptions)} - {"objective"}
    of_search = {key: value for key, value in options.items() if key in own and value is not None}
    document: dict[str, Any] = {"sweep": head, "options": of_search, "group": [group]}
    write_at_once(folder / _SWEEP, toml_text(document))
