"""Options that several commands share."""

import contextlib
import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from tuner.cli import completion
from tuner.model import registry
from tuner.model.options import JOB_OPTIONS, OPTIONS, Option, Range, Switch, Text

_Function = TypeVar("_Function", bound=Callable[..., Any])

_COMPLETERS = {
    "objective": completion.objectives,
    "policy": completion.policies,
    "timing": completion.timings,
}
SQLITE = b"SQLite format 3\0"
"""Begin of every database."""

_FAR = 1e6  # the help shows no limit from here on


class NamedPath(click.Path):
    """A path with a name: the empty text, such as that of an unset variable, is not the working directory."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path."""
        if value == "":
            self.fail("is empty; name a path", param, ctx)
        return super().convert(value, param, ctx)


class DatabasePath(NamedPath):
    """The file of a database, which is made where there is none; any other file is refused."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        with contextlib.suppress(OSError):  # who opens it says why it cannot be read
            begin = b""
            if path.is_file():  # to open a pipe would wait
                with path.open("rb") as file:
                    begin = file.read(len(SQLITE))
            other = path.exists() and not path.is_file()  # as /dev/null, beside which files would be made
            if other or (begin and begin != SQLITE and not path.with_name(f"{path.name}.mirror").exists()):
                self.fail(f"{path} is no database; name another file, one that need not exist", param, ctx)
        return path


device_option = click.option(
    "--device",
    metavar="SPEC",
    shell_complete=completion.devices,
    help="cuda:0, sim:jetson-tx1, replay:h200 ... (`tuner devices`). Default: a GPU, else sim:jetson-tx1.",
)

database_option = click.option(
    "--database",
    type=DatabasePath(dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar="TUNER_DATABASE",
    help="The database. Default: tuner/tuner.db in the user's state directory.",
)


lock_option = click.option(
    "--lock",
    type=NamedPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A lock file (`tuner lock`). Default: TUNER_LOCK, or [tool.tuner] of pyproject.toml.",
)


def named_database() -> Path | None:
    """The database of the command that runs, where its command line names one.

    Commands that messages name need it then; one of the environment they find themselves.
    """
    context = click.get_current_context()
    named = context.get_parameter_source("database") is click.core.ParameterSource.COMMANDLINE
    return context.params["database"] if named else None


kernel_option = click.option(
    "--kernel",
    "kernel_files",
    type=NamedPath(path_type=Path),
    metavar="FILE",
    multiple=True,
    help="A kernel.toml, or a CUDA file with tuning pragmas, beside the catalogue; may be repeated.",
)


def with_files(
    workloads: tuple[str, ...], kernel_files: tuple[Path, ...]
) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Workloads and kernel files, those files among them that are written as workloads, as ``my.cu:N=4096``.

    Raises:
        KernelFileError: such a file is broken.
    """
    if not any(".cu" in one or ".toml" in one for one in workloads):
        return workloads, kernel_files
    from tuner.kernel_files.catalog import named_files

    return named_files(workloads, kernel_files)


def finite(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Callback of an option: a range of click lets not-a-number through, and infinity."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number", ctx, parameter)
    return value


def search_options(*, defaults: bool = True) -> Callable[[_Function], _Function]:
    """Decorator: all options of a search, as declared in ``tuner.model.options``.

    Args:
        defaults: False where the daemon chooses what is not given.
    """

    def decorate(function: _Function) -> _Function:
        for name, option in reversed(list(OPTIONS.items())):
            if not defaults and name not in (*JOB_OPTIONS, "objective", "policy", "clocks"):
                continue  # jobs do not have it
            function = search_option(name, default=option.default if defaults else None)(function)
        return function

    return decorate


FRONT_CHOICE = (
    "Of a run with --objective pareto: take the point of least energy that is at most this much slower than"
    " the fastest point, e.g. 5%. Default: the point of least energy × time."
)
"""Help of --max-slowdown where a run is read."""


def search_option(
    name: str, *, default: object = None, text: str | None = None
) -> Callable[[_Function], _Function]:
    """Decorator: one option of a search.

    Args:
        name: of the option.
        default: None for no value.
        text: help; None for that of the option.
    """
    option = OPTIONS[name]
    share = isinstance(option.form, Range) and option.form.share
    names = f" Choose from {', '.join(registry.names('policy'))}." if name == "policy" else ""
    if isinstance(option.form, Switch):
        return click.option(option.flag, name, is_flag=True, default=default, help=text or option.help)
    return click.option(
        option.flag,
        name,
        type=_type(option.form),
        callback=partial(_checked, option),
        default=f"{100 * default:g}%" if share and isinstance(default, float) else default,
        show_default=default is not None,
        metavar=option.metavar or ("SHARE" if share else None),
        shell_complete=_COMPLETERS.get(name),
        help=(text or option.help) + names,
    )


def margin_option(flag: str, default: float | None, text: str) -> Callable[[_Function], _Function]:
    """Decorator: by how much a cost may be higher, as 3%."""
    option = Option(f"{text} For example 5%.", Range(0.01, 1.0, share=True))
    return click.option(
        flag,
        type=click.STRING,
        callback=partial(_checked, option),
        default=None if default is None else f"{100 * default:g}%",
        show_default=default is not None,
        metavar="SHARE",
        help=option.help,
    )


def _type(form: Range | Text | None) -> "click.ParamType[Any]":  # quoted: click 8.1 does not take the Any
    """The type of an option; limits that nobody comes near are checked and not shown."""
    if not isinstance(form, Range) or form.share:
        return click.STRING
    most = form.most if form.most < _FAR else None
    if form.whole:
        return click.IntRange(int(form.least), None if most is None else int(most))
    return click.FloatRange(form.least, most, min_open=form.above)


def _checked(option: Option, ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:  # noqa: ANN401 - whatever the option takes
    """Callback of an option of a search: the value, if it may have that."""
    if value is None or not isinstance(option.form, Range):
        return value
    number = _fraction(ctx, parameter, value) if option.form.share else value
    if not option.holds(number):
        raise click.BadParameter(f"{value}: write {option.form}", ctx, parameter)
    return number


def _fraction(ctx: click.Context, parameter: click.Parameter, value: str) -> float:
    """``5%`` and ``0.05`` are 0.05; a bare ``5`` could be either and is neither."""
    text = value.strip()
    try:
        number = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        number = math.nan
    if not 0.0 <= number < math.inf or (number > 1.0 and not text.endswith("%")):
        raise click.BadParameter(f"{value!r} is not a share; write for example 5% or 0.05", ctx, parameter)
    return number


scope_option = click.option(
    "--scope",
    metavar="PARTS",
    default="gpu",
    show_default=True,
    help="What is counted: gpu, gpu+cpu with the host's processors and memory, or cpu alone.",
)
