"""``tuner best``: the best known answer for workloads, from the daemon or the database."""

import shlex
import sys
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tuner.cli import completion
from tuner.cli.db import reading
from tuner.cli.options import (
    database_option,
    device_option,
    kernel_option,
    lock_option,
    named_database,
    search_option,
    with_files,
)
from tuner.cli.output import console, echo, json_option, write_json
from tuner.cli.remote import client_of, socket_option
from tuner.model.errors import DaemonError, InputError, UnknownNameError
from tuner.model.options import OPTIONS, SearchOptions
from tuner.model.units import moment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuner.database.best_known import DatabaseSource
    from tuner.database.ranking import AnswerQuery, ServedAnswer
    from tuner.database.runs import Store
    from tuner.model.run_document import Best

_MOST_STORED = 8  # workloads that a message names


@click.command(short_help="Print the best answer for workloads that run together.")
@click.argument("workloads", nargs=-1, metavar="WORKLOAD...", shell_complete=completion.workloads)
@search_option("objective", default=SearchOptions.objective, text="time, energy, edp, ed2p or pareto.")
@search_option(
    "max_slowdown",
    text="The limit that the runs were made under, e.g. 5%. With the objective pareto: the point of least"
    " energy within it.",
)
@search_option("scope", default=SearchOptions.scope, text="What its joules are of, e.g. gpu+cpu.")
@search_option(
    "timing",
    text="How its times were taken: back-to-back or single. Default: back-to-back, else what is stored.",
)
@click.option("--clocks-as-found", is_flag=True, help="Only answers that set no GPU clock.")
@lock_option
@click.option("--frozen", is_flag=True, help="An answer of the lock file that is not served is an error.")
@click.option("--no-daemon", is_flag=True, help="Read the database, whether or not a daemon answers.")
@device_option
@kernel_option
@database_option
@socket_option
@json_option
def best(
    workloads: tuple[str, ...],
    *,
    lock: Path | None,
    frozen: bool,
    no_daemon: bool,
    kernel_files: tuple[Path, ...],
    database: Path | None,
    socket: str | None,
    json_path: str | None,
    **question: Any,  # noqa: ANN401 - the options that make the question
) -> None:
    """Print the best configurations for workloads that run together.

    The answer comes from the lock file that is in force (`tuner lock`), else from the daemon if one is
    running; it also queues searches for unknown workloads. Without a daemon, and with --no-daemon, --database
    or --kernel, the database is read. If no answer of these workloads is stored at a near batch, the best
    known configuration of each workload is printed, with its origin. The exit code is 1 if only defaults are
    known. Without a WORKLOAD the kernels of --kernel are meant, at their first size.

    A stored answer is fresh when GPU, driver, CUDA and kernel sources are those of its measurement; otherwise
    it is printed as stale, with the reasons.
    """
    asked = _Question(*with_files(workloads, kernel_files), database, **question)
    if not (asked.workloads or asked.kernel_files):
        raise click.UsageError("Missing argument 'WORKLOAD...'; with --kernel it may be left out.")
    if asked.objective == "time" and asked.max_slowdown is not None:
        raise InputError("--max-slowdown: limits a search for energy, and the objective is time")
    objective = click.get_current_context().get_parameter_source("objective")
    asked_for = objective is ParameterSource.COMMANDLINE or asked.timing == "single"  # which has no joules
    instead = () if asked_for else ("energy",)
    if _show_locked(asked, lock, json_path, instead, frozen=frozen):
        return
    counted_apart = asked.scope != SearchOptions.scope  # a daemon answers for the GPU alone
    if not (no_daemon or asked.kernel_files or database or counted_apart):
        served = _of_daemon(asked, socket, instead)
        if served is not None:
            _show_served(served, json_path, "of the daemon (--no-daemon reads the database)")
            return
    _show_stored(asked, json_path, instead)


def _show_locked(
    question: "_Question",
    lock: Path | None,
    json_path: str | None,
    instead: tuple[str, ...],
    *,
    frozen: bool,
) -> bool:
    """Show the answer of the lock file that is in force; False without one, with the reasons printed."""
    from tuner.database.answer_lock import in_force
    from tuner.database.best_known import BestKnown

    locked = in_force(lock, frozen=frozen)
    if locked is None:
        return False
    with reading(question.database) as store:
        query = question.query(store)
    found, reasons = locked.served(query)
    _warn(reasons)
    for other in instead if found is None and not reasons else ():
        query = replace(query, objective=question.stored_under(other, None))
        found, reasons = locked.served(query)
        _warn(reasons)
        if found is not None:
            _tell_instead(question.objective, other)
    if found is None:
        return False
    _show_served(BestKnown(found, {}).answer(query), json_path, f"of {locked.lock.path}")
    return True


def _of_daemon(question: "_Question", socket: str | None, instead: tuple[str, ...]) -> "Best | None":
    """The daemon's answer; None to read the database, with the reason printed if a daemon is here.

    Args:
        question: what is asked for.
        socket: as named.
        instead: objectives whose stored answer is taken where none is stored for that of the question.

    Raises:
        TunerError: the daemon that was named does not answer.
    """
    client = client_of(socket)

    def best_for(objective: str, count: float | None) -> "Best":
        return client.best(
            *question.workloads,
            objective=objective,
            device=question.device or "",
            max_slowdown=question.max_slowdown,
            clocks_as_found=question.clocks_as_found,
            timing=question.timing,
            count=count,
        )

    try:
        best = best_for(question.objective, None)
        others = [best_for(other, 0.0) for other in instead] if best.run is None else []
    except (DaemonError, InputError) as error:
        if socket is not None:
            raise
        if isinstance(error, InputError):  # what is wrong here too is said once
            with reading(question.database) as store:
                question.query(store)
        path = client.address.path
        if path is not None and path.exists():
            echo(f"the database is read, as the daemon gave no answer: {error}", err=True)
        return None
    found = next((other for other in others if other.run is not None), best)
    if found is not best:
        _tell_instead(question.objective, found.objective)
    return found


def _show_served(best: "Best", json_path: str | None, whose: str) -> None:
    from tuner.report.lists import show_best

    out = console(json_path)
    if json_path is not None:
        write_json(json_path, asdict(best))
    out.print(whose)
    show_best(best, out)


@dataclass(frozen=True)
class _Question:
    """Question to the database, from the options of the command."""

    workloads: tuple[str, ...]
    kernel_files: tuple[Path, ...]
    database: Path | None
    objective: str
    max_slowdown: float | None
    scope: str
    timing: str | None
    clocks_as_found: bool
    device: str | None

    def query(self, store: "Store | None") -> "AnswerQuery":
        """Return the query of the database, which may know kernels that nothing else here does."""
        from tuner.kernel_files.catalog import Catalog
        from tuner.model.objective import Objective
        from tuner.search.option_checks import check_options
        from tuner.search.request import answer_query
        from tuner.search.stored import with_stored_kernels

        check_options({"objective": self.objective, "timing": self.timing}, lambda name: OPTIONS[name].flag)
        limit = None if Objective(self.objective).is_front else self.max_slowdown
        try:
            return answer_query(
                with_stored_kernels(Catalog.load(self.kernel_files), self.workloads, store),
                self.workloads,
                self.device,
                objective=self.stored_under(self.objective, limit),
                clocks_as_found=self.clocks_as_found,
                any_timing=self.timing is None,
            )
        except UnknownNameError as error:  # as of a kernel without sizes
            raise InputError(f"{error}{_stored_instead(self.workloads, store)}") from error

    def stored_under(self, objective: str, max_slowdown: float | None) -> str:
        """Return the name under which answers for an objective and a limit are stored."""
        from tuner.model.objective import described, normalised_scope

        return described(objective, max_slowdown, normalised_scope(self.scope), self.timing)

    def words(self, objective: str) -> str:
        """Return the arguments that give another command the same workloads, limit, device and database."""
        limit = [] if self.max_slowdown is None else ["--max-slowdown", f"{100 * self.max_slowdown:g}%"]
        counted = [] if self.scope == SearchOptions.scope else ["--scope", self.scope]
        counted += [] if self.timing is None else ["--timing", self.timing]
        where = ["--device", self.device] if self.device else []
        where += [word for file in self.kernel_files for word in ("--kernel", str(file))]
        where += ["--database", str(self.database)] if self.database else []
        return shlex.join([*self.workloads, "--objective", objective, *limit, *counted, *where])


def _stored_instead(workloads: "Iterable[str]", store: "Store | None") -> str:
    """List what is stored of the kernels of some workloads, the newest first; empty where nothing is."""
    from tuner.model.records import WorkloadName

    kernels = {WorkloadName.parse(spec).kernel for spec in workloads}
    runs: dict[str, int] = {}
    for run in () if store is None else store.all_answered():
        for name, _ in run.conditions["workloads"]:
            if WorkloadName.parse(name).kernel in kernels:
                runs.setdefault(name, run.id)
    shown = [f"{name} (run {run})" for name, run in islice(runs.items(), _MOST_STORED)]
    more = [f"{len(runs) - len(shown)} more"] if len(runs) > len(shown) else []
    return f"; stored are: {', '.join([*shown, *more])}" if shown else ""


def _tell_instead(objective: str, other: str) -> None:
    echo(f"no answer for {objective} is stored: this is one for {other}", err=True)


def _show_stored(question: _Question, json_path: str | None, instead: tuple[str, ...]) -> None:
    from tuner.database.best_known import DatabaseSource, best_known
    from tuner.database.ranking import rank_stored
    from tuner.kernel_files.catalog import origin
    from tuner.model.objective import Objective

    within = question.max_slowdown if Objective(question.objective).is_front else None  # a point is chosen
    with reading(question.database) as store:
        query = question.query(store)
        files = [kernel.path for kernel in query.kernels.values() if origin(kernel.path) == "file"]
        question = replace(question, kernel_files=tuple(dict.fromkeys(files)))
        hint = f"run `tuner run {question.words(question.objective)}`"
        if store is None:
            echo(f"nothing is stored: {hint}", err=True)
            sys.exit(1)
        source = DatabaseSource(store)
        known = best_known(query, source)
        for other in instead if known.stored is None else ():
            query_instead = replace(query, objective=question.stored_under(other, None))
            if (found := best_known(query_instead, source)).stored is not None:
                _tell_instead(question.objective, other)
                query, known = query_instead, found
        if known.stored is not None:
            _warn((*known.passed_over, *known.other_timing(query)))
            _show_run(store, known.stored, query, json_path, within)
            return
        _point_to_front(question, query, source)
        if any(part and part.origin != "default" for part in known.parts.values()):
            _show_served(known.answer(query), json_path, "of the database")
            return
        _warn(known.passed_over)
        which = f" for {query.device.spec}"
        if ranked := rank_stored(query, source.of_set(tuple(query.batches))):
            nearest = ranked[0]
            which = f" that is near enough (run {nearest.answer.run}: {'; '.join(nearest.stale)})"
        echo(f"nothing is stored{which}: {hint}", err=True)
        _warn(_of_other_timing(query, source))
        _warn(_of_other_devices(query, source))
        _warn(_models_left_out(query, source))
        sys.exit(1)


def _warn(lines: "Iterable[str]") -> None:
    for line in lines:
        echo(line, err=True)


def _point_to_front(question: _Question, query: "AnswerQuery", source: "DatabaseSource") -> None:
    """Print the command that reads the point from a front, where a front has it."""
    from tuner.database.ranking import served_answer

    if question.objective != "energy" or question.max_slowdown is None:
        return
    of_fronts = replace(query, objective=question.stored_under("pareto", None))
    front = served_answer(of_fronts, source.of_set(tuple(query.batches)))
    if front is not None:
        words = question.words("pareto")
        echo(f"run {front.answer.run} has a front with such a point: `tuner best {words}`", err=True)


def _show_run(
    store: "Store",
    served: "ServedAnswer",
    query: "AnswerQuery",
    json_path: str | None,
    max_slowdown: float | None,
) -> None:
    """Print the answer of a run, whole; of a front the point within a slowdown.

    Raises:
        InputError: the point is none of its kernels.
    """
    from tuner.database.ranking import misfit
    from tuner.report.answer import within_slowdown
    from tuner.report.run_report import run_report
    from tuner.search.stored import stored_document

    stored = served.answer
    run = next(run for run in store.answered(stored.names, stored.objective) if run.id == stored.run)
    out = console(json_path)
    answer = None if run.answer is None else within_slowdown(run.answer, max_slowdown)
    if answer is None or answer["best"] is None:  # damaged since it was found
        raise InputError(f"run {run.id}: it has no answer any more")
    why = misfit(query.kernels, replace(stored, configurations=answer["best"]["configurations"]))
    if why:
        raise InputError(why)
    if json_path is not None:
        write_json(json_path, {**answer, "stale": list(served.stale), "run": run.id})
    out.print(f"stored on {moment(run.started_at)}")
    for reason in served.stale:
        out.print(f"stale: {reason}")
    document = within_slowdown(stored_document(store, run), max_slowdown)
    out.print(run_report(document, out.width, database=named_database()))


def _of_other_timing(query: "AnswerQuery", source: "DatabaseSource") -> list[str]:
    """The answer of another timing than the one that is asked for."""
    from tuner.database.ranking import served_answer
    from tuner.model.objective import OF_SINGLES, TIMED

    of_any = replace(query, objective=query.objective.replace(OF_SINGLES, ""), any_timing=True)
    other = served_answer(of_any, source.of_set(tuple(query.batches)))
    if other is None:
        return []
    timing = other.answer.timing
    return [f"run {other.answer.run} has an answer by {TIMED[timing]}: --timing {timing}"]


def _of_other_devices(query: "AnswerQuery", source: "DatabaseSource") -> list[str]:
    """Other devices that have answers of the same workloads."""
    answers = source.of_set(tuple(query.batches))
    runs = {str(answer.conditions["device"]["spec"]): answer.run for answer in answers}
    runs.pop(query.device.spec, None)
    return [f"run {run} has an answer for them: --device {spec}" for spec, run in sorted(runs.items())]


def _models_left_out(query: "AnswerQuery", source: "DatabaseSource") -> list[str]:
    """Trained models of the kernels that do not serve, each with the first reason."""
    lines: dict[str, None] = {}
    for name, kernel in query.kernels.items():
        for model in source.models(kernel):
            if model.source != query.sources.get(name):
                why = "its source has changed since: train it again"
            elif model.device.name != query.device.name:
                why = f"on {model.device.name}"
            elif model.objective != query.objective.partition(" ")[0]:
                why = f"ask with --objective {model.objective}"
            else:
                continue
            lines[f"{name} has a model for {model.objective}, which does not serve: {why}"] = None
    return list(lines)
