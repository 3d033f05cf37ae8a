"""``tuner gate``, ``judge`` and ``lock``: commands for pipelines, and for what a repository commits."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import click

from tuner.cli import completion
from tuner.cli.db import reading
from tuner.cli.history import document_of, title_of
from tuner.cli.main import orderly_stop
from tuner.cli.options import (
    SQLITE,
    NamedPath,
    database_option,
    device_option,
    kernel_option,
    margin_option,
    search_option,
    with_files,
)
from tuner.cli.output import console, echo, json_option, writable, write_json, write_whole
from tuner.model.errors import DeviceUnavailableError, InputError, TunerError

if TYPE_CHECKING:
    from tuner.database.answer_lock import AnswerLock, LockedAnswer
    from tuner.kernel_files.catalog import Catalog
    from tuner.model.jobs import DeviceIdentity
    from tuner.model.run_document import Device
    from tuner.search.gate import Base, Case, PinnedAnswer


_LIMIT_S = 60.0
_LOOKED_AT = 64  # bytes of a file that tell what it is


@click.command(short_help="Fail where a change makes kernels slower or dearer: for CI.")
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...", shell_complete=completion.workloads)
@click.option(
    "--against",
    metavar="LOCK|RUN|DATABASE",
    help="What pins configurations: a lock file, the number or the JSON of a run, or a database.",
)
@click.option(
    "--base",
    metavar="REVISION|FOLDER",
    help="The files before the change: a revision of git, such as origin/main, or another checkout.",
)
@margin_option("--time", 0.03, "How much longer a round may take.")
@margin_option("--energy", None, "How many more joules a round may take. Default: joules are not measured.")
@search_option("time_limit_s", default=_LIMIT_S, text="Seconds of the device for each workload, at most.")
@click.option("--junit", "junit_path", metavar="FILE", callback=writable, help="Write JUnit XML to FILE.")
@click.option(
    "--markdown",
    "markdown_path",
    metavar="FILE",
    callback=writable,
    help="Write a table for a pull request to FILE.",
)
@device_option
@kernel_option
@database_option
@json_option
def gate(
    workloads: tuple[str, ...],
    *,
    against: str | None,
    base: str | None,
    time: float,
    energy: float | None,
    time_limit_s: float,
    junit_path: str | None,
    markdown_path: str | None,
    device: str | None,
    kernel_files: tuple[Path, ...],
    database: Path | None,
    json_path: str | None,
) -> None:
    """Measure each WORKLOAD as it was and as it is, in turn, until it is known whether it has become worse.

    WORKLOAD is a kernel, or one at a size; your own by its file, as my.toml or my.toml:N=4096.

    With --base the files of then and those that are here run with their defaults, or with what a lock file
    pinned then and pins now. Without it the files of then are those that the run of --against keeps, or of
    the commit that last wrote the lock file. Where neither files nor configuration have changed, nothing is
    measured.

    The exit code is 0 where nothing is worse, 1 where something is by more than its margin, 3 where that
    could not be decided within the time limit or no GPU answers, and 2 for wrong input. A simulated GPU is
    taken only where --device names it.
    """
    from tuner.measurement.paired import EXIT_CODES, UNDECIDED, WORSE
    from tuner.model.run_document import device_document
    from tuner.report.diff import gate_document, junit, line_of, markdown, overall, summary
    from tuner.search.gate import Case, Gate, Gated
    from tuner.search.request import SearchRequest
    from tuner.search.setup import open_setup

    specs, kernel_files = with_files(workloads, kernel_files)
    margins = {"time": time, **({} if energy is None else {"energy": energy})}
    out, found, cases = console(json_path), list[Gated](), list[Case]()
    used: Device = {"name": "no GPU"}

    def tell(one: Gated) -> None:
        found.append(one)
        out.print(line_of(one), soft_wrap=True)

    with orderly_stop("interrupted; nothing is decided"), TemporaryDirectory(prefix="tuner-gate-") as scratch:
        folder = Path(scratch)
        try:
            question = _question(against, base, database, (specs, kernel_files), folder)
            request = SearchRequest(workloads=specs, kernel_files=kernel_files, joules=energy is not None)
            with open_setup(device, request) as setup:
                identity = setup.device.identity
                if identity.modelled and not (device or "").startswith("sim:"):
                    raise DeviceUnavailableError("no GPU answers; --device sim:NAME models one")
                if energy is not None and setup.sensor is None:
                    raise InputError(f"--energy: {'; '.join(setup.notices)}; leave it out")
                used = device_document(identity)
                cases += _cases(question, identity, list(margins)[-1])
                checks = Gate(setup, question.catalog, question.base, folder, margins, time_limit_s)
                for one in checks.verdicts(cases):
                    tell(one)
        except TunerError as error:
            if error.exit_code != EXIT_CODES[WORSE]:
                raise
            left = [" + ".join(case.specs) for case in cases[len(found) :]]
            for name in left or [" + ".join(specs) or str(against)]:  # a GPU that is lost makes nothing worse
                tell(Gated(name, UNDECIDED, str(error)))
    out.print(summary(found, "modelled" if used.get("modelled") else ""), soft_wrap=True)
    if junit_path is not None:
        write_whole(Path(junit_path), junit(found), f"--junit {junit_path}")
    if markdown_path is not None:
        write_whole(Path(markdown_path), markdown(found, used["name"]), f"--markdown {markdown_path}")
    if json_path is not None:
        write_json(json_path, gate_document(found, used))
    sys.exit(EXIT_CODES[overall(found)])


# --- What workloads are held against, as the command line names it.


class _Question(NamedTuple):
    """A question of the command line, as far as it is clear before a GPU is opened.

    Attributes:
        catalog: the kernels that are here.
        specs: the workloads.
        reference: a pinned answer, a database, a lock file as it is and as it was, or nothing.
        base: the files before the change; None where pinned answers tell them.
    """

    catalog: "Catalog"
    specs: tuple[str, ...]
    reference: "PinnedAnswer | Path | tuple[AnswerLock, AnswerLock | None] | None"
    base: "Base | None"


def _question(
    against: str | None,
    base: str | None,
    database: Path | None,
    named: tuple[Sequence[str], Sequence[Path]],
    folder: Path,
) -> _Question:
    """Read all that is named.

    Args:
        against: a lock file, a run, a database, or None.
        base: a revision of git or a folder; None for none.
        database: that has runs by number.
        named: workloads and kernel files.
        folder: for the files of a revision.

    Raises:
        InputError: it cannot be read, or nothing is named.
    """
    from tuner.database import answer_lock
    from tuner.kernel_files.build_record import with_kernels_of
    from tuner.kernel_files.catalog import Catalog
    from tuner.search.gate import pinned_of_run

    if against is None and base is None:
        raise InputError("nothing to hold kernels against: name --base REVISION, or --against")
    specs, catalog = named[0], Catalog.load(named[1])
    lock = None
    if against is not None and _begins(Path(against)) not in (b"", SQLITE[:1], b"{"):
        lock = answer_lock.read(Path(against))
    before = None if base is None else _base(base, folder)
    if lock is not None:
        before = before or _base(_last_commit(lock.path), folder)._replace(pinned=True)
        then = before.path_of(lock.path)
        locks = lock, None if then is None or not then.exists() else answer_lock.read(then)
        return _Question(catalog, tuple(specs) or catalog.own, locks, before)
    if against is None or _begins(Path(against)) == SQLITE[:1]:
        if not (specs or catalog.own):
            raise InputError("no kernel is named: add one, as in `tuner gate --base main my.toml:N=4096`")
        return _Question(catalog, catalog.exact(specs), None if against is None else Path(against), before)
    document = document_of(against, database)
    own = None if document.get("merged_from") else document
    catalog, _ = with_kernels_of(catalog, own, document.get("run"))
    pinned = pinned_of_run(document, title_of(document, against))
    sized = {str(catalog.workload(spec)) for spec in specs if ":" in spec}
    kernels = {name.partition(":")[0] for name in pinned.batches}
    if sized - pinned.batches.keys() or {spec for spec in specs if ":" not in spec} - kernels:
        names = " + ".join(pinned.batches)
        raise InputError(f"--against {pinned.told}: it is of {names}; name these, or no workload")
    return _Question(catalog, catalog.exact(pinned.specs), pinned, before)


def _begins(path: Path) -> bytes:
    """The first byte of a file that is no space: that of a database, of JSON or of a lock file."""
    try:
        with path.open("rb") as file:
            return file.read(_LOOKED_AT).lstrip()[:1]
    except OSError:
        return b""


def _cases(question: _Question, identity: "DeviceIdentity", objective: str) -> "list[Case]":
    """The comparisons to make on a GPU; of several answers of a lock file those for the objective."""
    from tuner.search.gate import Case, PinnedAnswer, locked_sets, pinned_of_lock, pinned_of_store

    reference, specs = question.reference, question.specs
    if isinstance(reference, PinnedAnswer):
        return [Case(specs, reference, reference)]
    if reference is None:
        return [Case((spec,)) for spec in specs]
    if isinstance(reference, tuple):
        cases = []
        for names in locked_sets(reference, specs, identity):
            new, old = (pinned_of_lock(lock, names, identity, objective) for lock in reference)
            cases.append(Case(names, old, new))
        return cases
    with reading(reference) as store:
        if store is None:
            raise InputError(f"--against {reference}: nothing is stored")
        served = [pinned_of_store(store, question.catalog, spec, identity, objective) for spec in specs]
    return [Case((spec,), answer, answer) for spec, answer in zip(specs, served, strict=True)]


# --- The files before a change, from git or from another checkout.


def _base(name: str, folder: Path) -> "Base":
    """The files before the change.

    Args:
        name: a folder, or a revision of the repository that this folder is in.
        folder: the files of a revision are written to it.
    """
    from tuner.search.gate import Base

    if Path(name).is_dir():
        return Base(name, Path(name).resolve(), Path.cwd())
    asked = f"--base {name}"
    here = Path(_git("rev-parse", "--show-toplevel", asked=asked))
    commit = _git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}", asked=asked)
    checkout = folder / "base" / here.name  # after which a kernel may be called
    index = {"GIT_INDEX_FILE": str(folder / "index")}
    _git("-C", str(here), "read-tree", commit, asked=asked, environment=index)
    _git("-C", str(here), "checkout-index", "--all", f"--prefix={checkout}/", asked=asked, environment=index)
    return Base(name, checkout, here)


def _last_commit(path: Path) -> str:
    """The commit that last wrote a file."""
    commit = _git(
        "-C",
        str(path.resolve().parent),
        "log",
        "-1",
        "--format=%h",
        "--",
        path.name,
        asked=f"--against {path}",
    )
    if not commit:
        raise InputError(f"--against {path}: git has no commit of it; name --base REVISION")
    return commit


def _git(*words: str, asked: str, environment: Mapping[str, str] | None = None) -> str:
    """Run git, and return its output."""
    try:
        done = subprocess.run(  # noqa: S603 - a list, without a shell
            ["git", *words],  # noqa: S607 - the user's own
            env={**os.environ, **(environment or {})},
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise InputError(
            f"{asked}: git cannot be run ({error.strerror}); name the folder of another checkout"
        ) from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["git failed"])[-1]
        raise InputError(
            f"{asked}: {reason}; name a revision that git has here (a shallow clone lacks older ones:"
            " fetch them), or the folder of another checkout"
        )
    return done.stdout.strip()


# --- ``tuner judge``: a candidate against a reference.

_WRONG = 1


@click.command(short_help="Judge a candidate against a reference: right, honest, time, joules.")
@click.argument("file", type=NamedPath(path_type=Path))
@click.option(
    "--candidate",
    metavar="NAME",
    default="candidate",
    show_default=True,
    help="A function of FILE, or file.py:function of another.",
)
@click.option("--reference", metavar="NAME", default="reference", show_default=True, help="Likewise.")
@click.option("--inputs", metavar="NAME", default="inputs", show_default=True, help="Likewise.")
@click.option(
    "--seconds", type=float, default=10.0, show_default=True, help="Measure both in turns so long at most."
)
@click.option(
    "--timeout", type=float, default=60.0, show_default=True, help="Longest wait for a call, seconds."
)
@json_option
@click.pass_context
def judge(
    ctx: click.Context,
    *,
    file: Path,
    candidate: str,
    reference: str,
    inputs: str,
    seconds: float,
    timeout: float,
    json_path: str | None,
) -> None:
    """Judge whether a candidate in FILE is right and honest, how fast it is, and how many joules it takes.

    FILE is a Python file with functions candidate, reference and inputs(rng), or inputs(rng, size) and
    a list sizes; writes and tolerance may stand there, too. The exit code is 0 where the candidate is right,
    1 where it is wrong or cheats, and 2 for wrong input.
    """
    from tuner.python.judging import judge as judgement_of

    names = (candidate, reference, inputs)
    one, other, made = (name if ":" in name else f"{file}:{name}" for name in names)
    judgement = judgement_of(one, other, inputs=made, seconds=seconds, timeout_s=timeout)
    if json_path is not None:
        write_json(json_path, {**asdict(judgement), "sizes": [str(size) for size in judgement.sizes]})
    if json_path != "-":
        echo(judgement)
    ctx.exit(0 if judgement.verdict == "right" else _WRONG)


# --- ``tuner lock``: tuned answers as a file that a repository commits, and its check on this GPU.

_FILE = Path("tuner.lock")


@click.command(short_help="Write tuned answers to a file that a repository commits, or check it.")
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD|KERNEL]...", shell_complete=completion.workloads)
@click.option(
    "--output",
    type=NamedPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The lock file; what it has of others stays. Default: that in force, else tuner.lock.",
)
@search_option("objective", text="Only answers for this one, e.g. energy. Default: all that are stored.")
@click.option("--check", is_flag=True, help="Write nothing; measure each answer for this GPU again.")
@click.option("--frozen", is_flag=True, help="With --check: what is not for this kernel or driver fails.")
@device_option
@kernel_option
@database_option
def lock(
    *,
    workloads: tuple[str, ...],
    output: Path | None,
    objective: str | None,
    check: bool,
    frozen: bool,
    device: str | None,
    kernel_files: tuple[Path, ...],
    database: Path | None,
) -> None:
    """Write the stored answers of this GPU to a lock file, in which every user of the repository finds them.

    Answers are those that are fresh: of this kind of GPU, this driver and the present kernels. WORKLOAD is a
    kernel at one size, or several that run together, joined by +; KERNEL, or its file, all that is stored of
    it; without one all is written. `tuner best`, `tuner.apply`, `tune_kernel`, the daemon and Triton's
    decorators read the file first where the variable TUNER_LOCK or [tool.tuner] in pyproject.toml names it.

    With --check each answer of the file that is for this GPU is measured turn by turn with the default. The
    exit code is 1 where one costs more than the default, does not run, or is none of its kernel's.
    """
    from tuner.database.answer_lock import place_in_force
    from tuner.model.objective import Objective

    if objective is not None:
        Objective(objective)  # refuses what is none
    names, kernel_files = with_files(workloads, kernel_files)
    if frozen and not check:
        raise InputError("--frozen: is for --check; without it the file is written")
    path, frozen_here = (output, False) if output is not None else place_in_force()
    if check:
        _check(path or _FILE, names, objective, device, kernel_files, frozen=frozen or frozen_here)
    else:
        _write(path or _FILE, names, objective, device, kernel_files, database=database)


def _write(
    output: Path,
    names: tuple[str, ...],
    objective: str | None,
    device: str | None,
    kernel_files: tuple[Path, ...],
    *,
    database: Path | None,
) -> None:
    from tuner.cli.db import reading
    from tuner.database.answer_lock import read, written
    from tuner.devices.choice import identify
    from tuner.kernel_files.catalog import Catalog
    from tuner.model.records import WorkloadName
    from tuner.search.stored import lockable
    from tuner.system.ownership import held_folder

    if output.exists():
        read(output)  # refused before anything is looked up
    catalog, identity = Catalog.load(kernel_files), identify(device)
    with reading(database) as store:
        found, left_out = ([], []) if store is None else lockable(store, catalog, identity)
    found = [one for one in found if _is_asked(one, names, objective)]
    for locked, why in left_out:
        if _is_asked(locked, names, objective):
            echo(f"left out: {locked}: {why}", err=True)
    if not found:
        for name in names:
            for part in name.split("+"):
                catalog.kernel(WorkloadName.parse(part).kernel)  # refuses what is none
        asked = " + ".join(names) or "any workload"
        raise InputError(f"no answer of {asked} is stored for {identity.name}: `tuner run` finds one")
    with held_folder(output.absolute().parent):  # no other `tuner lock` writes between
        known = read(output).answers if output.exists() else ()
        kept = [one for one in known if not any(one.excludes(other) for other in found)]
        write_whole(output, written([*kept, *found]), f"--output {output}")
    new, others = sum(one not in known for one in found), len(kept)
    echo(f"{output}: {len(found)} written for {identity.name}, {new} of them new; {others} others stay")


def _is_asked(locked: "LockedAnswer", names: tuple[str, ...], objective: str | None) -> bool:
    """True for an answer that one of the names means: a kernel, a workload, or several joined by +."""
    if objective is not None and locked.objective.partition(" ")[0] != objective:
        return False
    wanted = [tuple(sorted(part.strip() for part in name.split("+"))) for name in names]
    kernels = {one.name.partition(":")[0] for one in locked.workload}
    return not names or locked.names in wanted or any(len(one) == 1 and one[0] in kernels for one in wanted)


def _check(
    path: Path,
    names: tuple[str, ...],
    objective: str | None,
    device: str | None,
    kernel_files: tuple[Path, ...],
    *,
    frozen: bool,
) -> None:
    from tuner.cli.main import orderly_stop
    from tuner.database.answer_lock import elsewhere, of_gpu, read, unfit
    from tuner.devices.choice import identify
    from tuner.kernel_files.catalog import Catalog
    from tuner.model.records import WorkloadName
    from tuner.report.progress import RunProgress
    from tuner.search.request import answer_query
    from tuner.search.tuning import check_locked

    catalog = Catalog.load(kernel_files)
    identity = identify(device)
    asked = [one for one in read(path).answers if _is_asked(one, names, objective)]
    failed, left_out = 0, 0
    for locked in asked:
        unknown = [
            one.name for one in locked.workload if WorkloadName.parse(one.name).kernel not in catalog.kernels
        ]
        why = f"no kernel file of {', '.join(unknown)} is here; name it with --kernel" if unknown else ""
        wrong = ""
        if not why:
            query = answer_query(catalog, locked.specs, device, objective=locked.objective)
            why = elsewhere(locked, query)
            wrong = unfit(locked, query)
        if why:
            same = [one for one in asked if replace(one, driver=locked.driver).excludes(locked)]
            if frozen and locked.is_of(identity) and locked in of_gpu(same, identity):
                raise InputError(f"--frozen: {path}: {locked}: {why}")
            echo(f"left out: {locked}: {why}", err=True)
            left_out += 1
            continue
        held, told = False, wrong
        if not wrong:
            with orderly_stop(), RunProgress(locked.objective.partition(" ")[0]) as progress:
                held, told = check_locked(locked, catalog, device, progress)
        failed += not held
        echo(f"{'holds' if held else 'FAILS'}: {locked}: {told}")
    if left_out == len(asked):
        raise InputError(f"{path}: no answer of {' + '.join(names) or 'it'} can be checked here")
    echo(f"{path}: {len(asked) - failed - left_out} hold, {failed} fail, {left_out} left out")
    if failed:
        sys.exit(1)
