"""``tuner program``: the best clock, power limit and tunables of any command, and the command with them."""

import contextlib
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.main import LazyGroup, orderly_stop
from tuner.cli.options import database_option, search_option
from tuner.cli.output import echo, json_option
from tuner.model.errors import InputError, TunerError
from tuner.model.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.model.records import StoredRun
    from tuner.model.run_document import TrialDocument

COMMANDS = {"run": "tuner.cli.program:run", "exec": "tuner.cli.program:execute"}


@click.group(cls=LazyGroup, table=COMMANDS)
def program() -> None:
    """Find the clock and settings of any command."""


_COMMAND: dict[str, Any] = {"ignore_unknown_options": True, "allow_interspersed_args": False}
_let_option = click.option(
    "--let",
    "lent",
    multiple=True,
    metavar="NAME=VALUE",
    help="{NAME} in the command is VALUE, and no part of what is stored or looked up, as the seed of a job"
    " of an array. May be repeated.",
)
_gpu_option = click.option(
    "--device",
    metavar="SPEC",
    help="cuda:N, a GPU's UUID, or NVML's index. Default: cuda:0, else the first with a reading.",
)


@click.command(context_settings=_COMMAND, short_help="Find the settings that suit a command best.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@search_option("objective", default="energy", text="What to minimise: time, energy, edp or ed2p.")
@search_option("max_slowdown", text="At most this much slower than the command as it stands, e.g. 5%.")
@search_option("clocks", default="off")
@search_option("power_limits", default="off")
@click.option(
    "--power-profiles",
    "profiles",
    metavar="NAMES",
    help="Power profiles of the GPU to choose from, as in max-q,llm-training, on a Jetson its power modes:"
    " 'all' are those that it has. No profile is always among them.",
)
@click.option(
    "--tunable",
    "tunables",
    multiple=True,
    metavar="NAME=VALUES",
    help="A tunable: {NAME} in the command is each of VALUES, as in batch=8,16,32; the first is the default."
    " With ' if EXPRESSION' behind them, words with {NAME} are left out where it is false. May be repeated.",
)
@click.option(
    "--env",
    "environment",
    multiple=True,
    metavar="NAME=VALUES",
    help="A tunable that is an environment variable, as in OMP_NUM_THREADS=4,8. May be repeated.",
)
@click.option(
    "--restrict",
    "rules",
    multiple=True,
    metavar="EXPRESSION",
    help="A rule for the tunables, as in 'batch * workers <= 64'. May be repeated.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="REGEX",
    help="A number that the command prints: the last match counts, as of 'tokens/s: ([0-9.]+)'; or @FILE:KEY"
    " of a JSON file that it writes. Times and joules are per unit of the first such rate. May be repeated.",
)
@click.option(
    "--keep",
    multiple=True,
    metavar="CONDITION",
    help="A condition on metrics, as in 'accuracy >= 0.92': a run that breaks it is no answer. May be"
    " repeated.",
)
@click.option(
    "--per", default="", metavar="METRIC", help="The metric that counts the work of a run, as in tokens."
)
@click.option(
    "--phase",
    default="",
    metavar="NAME",
    help="Run COMMAND once, and choose clock and power limit while it runs, by windows of the steps that it"
    ' marks: with tuner.phase("NAME") around each, or echo NAME > $TUNER_MARKS. A program that marks none:'
    " 'beat' finds with what period its power repeats.",
)
@_let_option
@search_option("window_s", text="With --phase: seconds of a window of steps at least. Default: 5.")
@search_option("policy", default=OPTIONS["policy"].default)
@search_option(
    "budget",
    text="At most this many runs of the command, those that compare the answer included; a first one is not"
    " counted. Default: 10, and one for each further configuration of the tunables up to 40.",
)
@search_option("time_limit_s")
@search_option("energy_precision", default=0.005)
@search_option("seed", default=0)
@search_option("sensor")
@search_option("scope", default="gpu")
@click.option("--resume", is_flag=True, help="Continue the newest unfinished run under the same conditions.")
@click.option("-v", "--verbose", is_flag=True, help="Report everything: why, how sure, where time went.")
@_gpu_option
@database_option
@json_option
def run(
    command: tuple[str, ...],
    *,
    profiles: str | None,
    tunables: tuple[str, ...],
    environment: tuple[str, ...],
    rules: tuple[str, ...],
    metrics: tuple[str, ...],
    keep: tuple[str, ...],
    per: str,
    phase: str,
    lent: tuple[str, ...],
    json_path: str | None,
    database: Path | None,
    device: str | None,
    resume: bool,
    verbose: bool,
    **options: Any,  # noqa: ANN401 - those of a search, by name
) -> None:
    """Run COMMAND again and again, and find the clock, power limit and tunables that suit it best.

    Each trial is a whole run without a terminal, whose time and joules are measured. At the end the best one
    and the command as it stands take turns. Clocks and power limits are restored on every way out.

    With --phase it is one run, which keeps the terminal, and whose exit code is passed on.
    """
    from tuner.cli.run import show_outcome
    from tuner.programs.program import Program
    from tuner.programs.tuning import open_runs, tune_program
    from tuner.report.answer import per_kwh
    from tuner.report.progress import RunProgress
    from tuner.search.request import SearchRequest

    per_kwh()  # a wrong one is told before anything runs
    if options["window_s"] is not None and not phase:
        raise InputError(
            f"--window {options['window_s']:g}: whole runs are as long as they are; give --phase, too"
        )
    if options["objective"] == "pareto":
        raise InputError("--objective pareto: a program has few runs; choose time, energy, edp or ed2p")
    tuned = Program.of_options(
        command,
        tunables=tunables,
        environment=environment,
        rules=rules,
        metrics=metrics,
        keep=keep,
        per=per,
        phase=phase,
        profiles=_profiles(profiles, device),
        lent=lent,
    )
    request = SearchRequest(**options)
    request.check()  # before an objective is shown
    codes: list[int] = []  # of a program that was one run: its own work counts, whatever was found
    opener = partial(open_runs, ended=codes.append)
    try:
        with (
            orderly_stop("interrupted; runs that had ended are stored"),
            RunProgress(request.objective, verbose=verbose, beside=bool(phase), compiles=False) as progress,
        ):
            outcome = tune_program(
                tuned, request, progress, opener, device=device, database=database, resume=resume
            )
    except TunerError as error:
        if not codes:
            raise
        echo(f"Error: {error}", err=True)
        sys.exit(codes[0])
    show_outcome(outcome, json_path, verbose=verbose)
    if codes or outcome.no_answer:
        sys.exit(*codes or (1,))


def _profiles(wanted: str | None, device: str | None) -> list[str]:
    """The power profiles that are asked for, by name.

    Raises:
        InputError: all are asked for, and the GPU has none.
    """
    if wanted != "all":
        return [] if wanted is None else [name.strip() for name in wanted.split(",")]
    from tuner.joules.watching import find_gpu
    from tuner.programs.tuning import power_profiles

    with contextlib.closing(power_profiles(find_gpu(device, "tuner program run"))) as control:
        return list(control.names())


@click.command("exec", context_settings=_COMMAND, short_help="Run a command with the answer of a run.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
@click.option(
    "--use",
    "number",
    type=click.IntRange(min=1),
    metavar="RUN",
    help="Number of the run. Default: the latest of this COMMAND, its files as they are, on such a GPU.",
)
@_let_option
@_gpu_option
@database_option
def execute(
    command: tuple[str, ...],
    *,
    number: int | None,
    lent: tuple[str, ...],
    device: str | None,
    database: Path | None,
) -> None:
    """Run COMMAND with the tunables of a run's answer, at its clock and power limit, which are restored.

    With --use and no COMMAND, that of the run. It keeps the terminal, signals reach it, and its exit code is
    passed on. The clock and the limit are held for the life of the command, and come back however that ends.
    """
    from tuner.cli.db import reading
    from tuner.joules.traces import run_attended
    from tuner.model.plan import Configuration
    from tuner.programs.program import AS_FOUND, PROFILE, Program, lent_values

    with reading(database) as store:
        history = [] if store is None else store.history()
    if number is None:
        number = _latest(command, history, device)
    found = next((one for one in history if one.id == number), None)
    best, stored = _answer(number, found)
    tuned = Program.of_document(stored)
    (values,) = best["configurations"].values()
    command = command or tuned.command
    shown = Program(command, tuned.tunables, tuned.environment, lent=lent_values(command, lent))
    words, environment = shown.rendered(Configuration(values))
    with orderly_stop("interrupted before the command was started"), contextlib.ExitStack() as stack:
        profile = values.get(PROFILE, AS_FOUND)
        settings = best["clock_mhz"], best.get("power_limit_w"), None if profile == AS_FOUND else profile
        if any(setting is not None for setting in settings):
            _hold(stack, number, settings, found, device)
        code = run_attended(words, environment)
    sys.exit(code)


def _latest(command: tuple[str, ...], history: "Sequence[StoredRun]", device: str | None) -> int:
    """Number of the latest run with an answer for a command, its files and a GPU of the name.

    Raises:
        InputError: there is none.
    """
    from tuner.joules.watching import find_gpu
    from tuner.programs.program import Program

    if not command:
        raise InputError("name the COMMAND, or a run of it by --use")
    gpu = find_gpu(device, "tuner program exec")
    for run in sorted(history, key=lambda run: -run.id):
        stored = run.conditions["settings"].get("program")
        if (
            stored is not None
            and tuple(stored["command"]) == command
            and run.conditions["device"]["name"] == gpu.name
            and run.answer is not None
            and run.answer["best"] is not None
            and Program.of_document(stored).fingerprint in run.conditions["sources"].values()
        ):
            return run.id
    raise InputError(
        f"{command[0]}: no run has tuned this command with these files on {gpu.name}; tuner program run does"
    )


def _answer(number: int, found: "StoredRun | None") -> tuple["TrialDocument", Any]:
    """The best trial of a run of a program, and the program.

    Raises:
        InputError: there is no such run, it is of kernels, or has no answer.
    """
    if found is None:
        raise InputError(f"--use {number}: there is no such run; `tuner history` lists them")
    stored = found.conditions["settings"].get("program")
    if stored is None:
        raise InputError(f"--use {number}: it tuned kernels, no program; `tuner export {number}` uses it")
    best = None if found.answer is None else found.answer["best"]
    if best is None:
        raise InputError(f"--use {number}: it has no answer; `tuner show {number}` says why")
    return best, stored


def _hold(
    stack: contextlib.ExitStack,
    number: int,
    settings: tuple[int | None, int | None, Any],
    found: Any,  # noqa: ANN401 - the run
    device: str | None,
) -> None:
    """Hold clock, power limit and power profile of a trial until the stack is closed.

    Raises:
        InputError: the run is of a GPU of another name.
        ClockError: they cannot be set.
    """
    from tuner.joules.watching import find_gpu
    from tuner.power.clocks import control

    gpu = find_gpu(device, "tuner program exec")
    measured = found.conditions["device"]["name"]
    if gpu.name != measured:
        raise InputError(
            f"--use {number}: was measured on {measured}, and this is {gpu.name}, which suits another clock;"
            " tuner program run measures here"
        )
    control.restore_stale()
    clock_mhz, limit_w, profile = settings
    if clock_mhz is not None:
        clocks = stack.enter_context(contextlib.closing(control.open_control(gpu.gpu)))
        stack.enter_context(clocks.locked(clock_mhz))
    if limit_w is not None:
        limits = stack.enter_context(contextlib.closing(control.open_power_limits(gpu.gpu)))
        stack.enter_context(limits.locked(limit_w))
    if profile is not None:
        profiles = stack.enter_context(contextlib.closing(control.open_power_profiles(gpu.gpu)))
        stack.enter_context(profiles.locked(profiles.number(profile)))
    held = [f"{clock_mhz} MHz"] if clock_mhz is not None else []
    held += [f"{limit_w} W at most"] if limit_w is not None else []
    held += [f"power profile {profile}"] if profile is not None else []
    echo(f"held while it runs: {', '.join(held)}", err=True)
