"""``tuner.tune``: one call from kernels to a result, its errors in the words of Python."""

import multiprocessing
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.compiler.triton_server import INSIDE
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError, TunerError, suggestion
from tuner.model.options import OPTIONS, SearchOptions
from tuner.python.arguments import data_folder
from tuner.python.kernel import Kernel, Restrictions
from tuner.python.result import Result

if TYPE_CHECKING:
    from tuner.search.session import TrialEvent


# --- Errors of kernels and options that are given in Python, in the words of Python.

# The keys of a kernel file that ``Kernel.kernel_file`` writes -> the argument that they come from.
_ARGUMENTS = tuple(
    (re.compile(key), argument)
    for key, argument in (
        (r"\[launch\] (grid|block|shared_bytes|cooperative)\b", r"\1"),
        (r"\[launch\]", "grid or block"),
        (r"\[tunables\] (\w+)", r"tunables: \1"),
        (r"\[tunables\]", "tunables"),
        (r"\[problem\.sizes\] (\w+)", r"sizes: \1"),
        (r"\[problem\.reference\] (\w+)", r"reference: \1"),
        (r"\[problem\.reference\]", "reference"),
        (r"\[problem\] tolerance", "tolerance"),
        (r"\[problem\] law", "check"),
        (r"\[problem\]: law\b", "check:"),
        (r"\[problem\]", "reference and check"),
        (r"\[default\] (\w+)", r"default: \1"),
        (r"\[default\]", "default"),
        (r"\[constraints\] rules, item (\d+)", r"restrictions, expression \1"),
        (r"\[constraints\] rules", "restrictions"),
        (r"taken by \[problem\.sizes\]", "that of a number among the arguments, or one of sizes"),
        (r"\[work\] (\w+)", r"work: \1"),
        (r"\[work\]", "work"),
        (r"\[kernel\] entry", "name"),
        (r"\[kernel\] (options|include_paths)", r"\1"),
    )
)


_ARRAY = re.compile(r"\[\[argument\]\] \d+ \((\w+)\)( (?:value|shape|dtype|input)\b)?")


@contextmanager
def python_words(labels: Collection[str], symbols: Collection[str]) -> Iterator[None]:
    """Have errors about these kernels name the arguments of ``tuner.Kernel`` instead of keys of kernel files.

    Args:
        labels: what messages call the kernels.
        symbols: names of their ``symbols``, which are no arguments.

    Raises:
        InputError: the error, in these words; its class stays.
    """
    try:
        yield
    except InputError as error:
        text = str(error)
        if any(label in text for label in labels):
            for key, argument in _ARGUMENTS:
                text = key.sub(argument, text)
            text = _ARRAY.sub(lambda m: f"{'symbols' if m[1] in symbols else 'arguments'}: {m[1]}", text)
            error.args = (text, *error.args[1:])
        raise


_NAMES = {option.flag.removeprefix("--"): name for name, option in OPTIONS.items()}
_FIRST = re.compile(r"^--(on|device|clocks|sensor|scope) (\S+): ")
_FLAG = re.compile(
    r"`[^`]*`"  # a command, which stays
    r"|--(?P<place>on|device) (?P<value>(?:local|dask|slurm|sim|cuda|replay|kind)\b\S*?)(?=[:,;.)]*(?:\s|$))"
    r"|--(?P<flag>[a-z]+(?:-[a-z]+)*)"
)


@contextmanager
def option_words() -> Iterator[None]:
    """Have errors name the arguments of ``tuner.tune`` instead of the options of ``tuner run``.

    Raises:
        TunerError: the error, in these words; its class stays.
    """
    try:
        yield
    except TunerError as error:
        if error.args and isinstance(error.args[0], str):
            text = _FIRST.sub(lambda m: f"{m[1]}={m[2]!r}: ", error.args[0])
            error.args = (_FLAG.sub(_as_argument, text), *error.args[1:])
        raise


def _as_argument(found: re.Match[str]) -> str:
    """An option as a call has it; a command between backticks as it is."""
    if found["place"]:
        return f"{found['place']}={found['value']!r}"
    flag = found["flag"]
    return _NAMES.get(flag, flag.replace("-", "_")) if flag else found[0]


def tune(
    kernels: Kernel | str | Sequence[Kernel | str],
    tunables: Mapping[str, Sequence[Any]] | None = None,
    *,
    restrictions: Restrictions | None = None,
    objective: str = "time",
    device: str | None = None,
    on: str | None = None,
    policy: str = "auto",
    budget: int | None = None,
    time_limit_s: float | None = None,
    max_slowdown: float | None = None,
    clocks: str = "off",
    seed: int = 0,
    database: str | Path | None = None,
    store: bool = True,
    resume: bool = False,
    progress: bool = True,
    allow_simulated: bool = False,
    kernel_files: Sequence[str | Path] = (),
    **options: Any,  # noqa: ANN401 - those of a search, by name
) -> Result:
    """Find the fastest configuration, or that of least energy, of kernels that run at the same time.

    Every trial is stored as it ends, as by ``tuner run``. Ctrl-C ends the search: the result is then what was
    known, and ``Result.interrupted`` is True.

    Args:
        kernels: a kernel, or several that run together; text is a workload of the catalogue, such as
            ``"scan-lf:N=1024"``.
        tunables: name -> values, for a kernel that has none of its own; of a single ``Kernel`` only.
        restrictions: beside those of the kernel; of a single ``Kernel`` only.
        objective: ``time``, ``energy``, ``edp``, ``ed2p`` or ``pareto``.
        device: ``cuda:0``, ``sim:h200``, ...; None for the GPU that the arrays are on, else that of this
            machine, or a simulated one with a warning where there is none.
        on: spread trials over several GPUs, as ``tuner run --on`` does: ``local`` or ``local:N``,
            ``dask://HOST:PORT`` or ``slurm``; None for one device. With it, ``device`` is None or names what
            all workers simulate. The processes of ``local`` import the script of the caller, which then
            needs the guard ``if __name__ == "__main__":``.
        policy: search strategy.
        budget: most trials; None for no limit.
        time_limit_s: longest search in seconds; None for no limit.
        max_slowdown: against the fastest trial, e.g. 0.05, for other objectives than time.
        clocks: GPU clocks to search: ``off`` for the clock as found, ``all``, or a list or range in MHz.
        seed: of the inputs and of random choices.
        database: where runs are stored; None for the user's own.
        store: False to keep nothing.
        resume: continue the newest unfinished run of the same kernels, options and device.
        progress: show on standard error how the search comes on.
        allow_simulated: model a device where the GPU of this machine does not answer.
        kernel_files: kernel files beside the catalogue.
        options: further options of a search by name, as ``tuner run`` has them: ``window_s``, ``joules``, ...

    Raises:
        InputError: an argument cannot be used; the message names it.
        EmptySpaceError: the restrictions leave no configuration.
        DeviceUnavailableError: the GPU cannot be opened.
        ClockError: clocks were asked for that cannot be set.
    """
    from tuner.pool.opening import opener_on  # noqa: PLC0415 - importing this package costs little
    from tuner.search.request import SearchRequest  # noqa: PLC0415 - same
    from tuner.search.tuning import run_request  # noqa: PLC0415 - same

    given = _several(kernels)
    _check(given, tunables, restrictions, options)
    _check_texts(objective=objective, policy=policy, clocks=clocks, device=device, on=on)
    _check_guarded(on)
    own = [one for one in given if isinstance(one, Kernel)]
    device = _device_of(own) if device is None and on is None else device
    with ExitStack() as stack:
        stack.enter_context(option_words())
        stack.enter_context(python_words([one.label for one in own], [s for one in own for s in one.symbols]))
        folder = stack.enter_context(data_folder(sum(one.data_bytes for one in own)))
        catalog, names, described = _described(given, folder, tunables, restrictions, kernel_files)
        request = SearchRequest(
            names,
            objective=objective,
            policy=policy,
            budget=budget,
            time_limit_s=time_limit_s,
            max_slowdown=max_slowdown,
            clocks=clocks,
            seed=seed,
            **options,
        )
        listener = stack.enter_context(_listener(objective, shown=progress))
        stored = _database(database, folder, store=store)
        outcome = run_request(
            request,
            catalog,
            listener,
            device=device,
            database=stored,
            resume=resume,
            allow_simulated=allow_simulated,
            opener=opener_on(on, listener.told, stored, resume=resume),
        )
    result = Result(outcome.document if store else outcome.document | {"run": None}, described)
    if result.modelled and device is None:
        warnings.warn(
            f"no GPU answers: {outcome.document['device']['spec']} stood in, and every number is modelled",
            stacklevel=2,
        )
    return result


def _several(kernels: object) -> list[Kernel | str]:
    """The kernels as a list."""
    if isinstance(kernels, Kernel | str):
        return [kernels]
    if not isinstance(kernels, Iterable):
        raise InputError(
            f"kernels: {kernels!r} is neither a tuner.Kernel nor a workload such as 'scan-lf:N=1024'"
        )
    return list(kernels)


def _check_texts(**given: object) -> None:
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise InputError(f"{name}: must be text, not {value!r}")


def _check_guarded(on: str | None) -> None:
    """Refuse to tune in a process that imports the script for something else, and a pool in its workers."""
    if INSIDE in os.environ:
        raise InputError(
            "this file is imported to compile its kernels of Triton, and may not tune;"
            " put the call below `if __name__ == '__main__':`"
        )
    if on is not None and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InputError(
            f"on={on!r}: a worker process imports this script, and may not tune;"
            " put the call below `if __name__ == '__main__':`"
        )


def _check(
    given: Sequence[Kernel | str],
    tunables: object,
    restrictions: object,
    options: Mapping[str, Any],
) -> None:
    if not given:
        raise InputError("kernels: none is given")
    for one in given:
        if not isinstance(one, Kernel | str):
            raise InputError(
                f"kernels: {one!r} is neither a tuner.Kernel nor a workload such as 'scan-lf:N=1024'"
            )
    if (tunables is not None or restrictions is not None) and not (
        len(given) == 1 and isinstance(given[0], Kernel)
    ):
        raise InputError("tunables and restrictions: with several kernels, give them to tuner.Kernel")
    known = [field.name for field in fields(SearchOptions)]
    for name in options:
        if name not in known:
            raise InputError(f"unknown option {name!r}{suggestion(name, known)}; options: {', '.join(known)}")


def _device_of(kernels: Sequence[Kernel]) -> str | None:
    """The GPU that arrays are on; None where all are on the host."""
    placed = [kernel for kernel in kernels if kernel.gpu is not None]
    if len({kernel.gpu for kernel in placed}) > 1:
        listed = ", ".join(f"those of {kernel.name} are on GPU {kernel.gpu}" for kernel in placed)
        raise InputError(f"kernels: arrays are on several GPUs ({listed}); name the device")
    return f"cuda:{placed[0].gpu}" if placed else None


def _described(
    given: Sequence[Kernel | str],
    folder: Path,
    tunables: Mapping[str, Sequence[Any]] | None,
    restrictions: Restrictions | None,
    kernel_files: Sequence[str | Path],
) -> tuple[Catalog, list[str], dict[str, Callable[[], KernelFile]]]:
    """The catalogue with the kernels, names of workloads, and the kernels of programs without data."""
    asked = any(isinstance(one, str) for one in given)
    catalog = Catalog.load(kernel_files) if asked else Catalog({})
    names, described = list[str](), dict[str, Callable[[], KernelFile]]()
    for position, one in enumerate(given):
        if isinstance(one, str):
            names.append(one)
            continue
        own = folder / str(position)
        own.mkdir()
        name = one.name if one.name not in catalog.kernels else f"{one.name}-{position + 1}"
        file = one.kernel_file(own, tunables, restrictions, name)
        (workload,) = file.workloads()
        catalog = catalog.with_kernels({file.name: file})
        names.append(str(workload))
        described[str(workload)] = partial(one.kernel_file, None, tunables, restrictions, name)
    return catalog, names, described


def _database(database: str | Path | None, folder: Path, *, store: bool) -> Path | None:
    if not store:
        return folder / "tuner.db"
    if database is not None and not isinstance(database, str | os.PathLike):
        raise InputError(f"database: must be a path, not {database!r}")
    return None if database is None else Path(database)


def _listener(objective: str, *, shown: bool) -> Any:  # noqa: ANN401 - a RunListener that is a context
    if not shown:
        return _Silence()
    from tuner.model.objective import NAMES  # noqa: PLC0415 - same
    from tuner.report.progress import RunProgress  # noqa: PLC0415 - same

    return RunProgress(objective if objective in NAMES else "time")  # a wrong one is refused later


class _Silence(AbstractContextManager["_Silence"]):
    """Hears how a run comes on, and says nothing."""

    def __exit__(self, *_: object) -> None:
        """Nothing was opened."""

    def compiled(self, done: int, total: int) -> None:
        """See ``RunListener``, as for the others."""

    def warming(self, watts: float, seconds: float) -> None:
        """Not told."""

    def measured(self, event: "TrialEvent") -> None:
        """Not told."""

    def told(self, sentence: str) -> None:
        """Not told; it is in the document."""
