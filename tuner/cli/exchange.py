"""``tuner import`` and ``tuner export``: the formats of other tools, and of builds."""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.history import document_of, newest_answered
from tuner.cli.options import (
    FRONT_CHOICE,
    database_option,
    kernel_option,
    lock_option,
    search_option,
    with_files,
)
from tuner.cli.output import echo, writable, write_whole
from tuner.model.errors import InputError
from tuner.system.untrusted.reading import JSON_BYTES, load_json, plain, read_bytes

if TYPE_CHECKING:
    from tuner.database.answer_lock import LockInForce
    from tuner.kernel_files.catalog import Catalog
    from tuner.model.records import StoredRun
    from tuner.recordings.exchange.exported_run import ExportedRun
    from tuner.recordings.exchange.t1_t4 import ForeignFile


FORMATS = ("flags", "header", "vllm", "sglang", "triton", "json", "t4", "kernel-launcher", "c-selector")
_NAMED = 5  # entries that were left out, or are there
_FOR_BUILDS = ("flags", "header")
_FUSED_MOE = ("vllm", "sglang")
_NO_ANSWERS = ("json", "t4", "c-selector")  # they are of all trials, or of a trained kernel


def _file_or_folder(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Callback of --output: a folder is for formats that have names for their files."""
    if value is not None and ctx.params.get("kind") in _FUSED_MOE:
        if Path(value).is_dir():
            return value
        if value.endswith(os.sep):
            raise InputError(f"--output {value}: there is no such folder")
    return writable(ctx, parameter, value)


@click.command("import", short_help="Import a file of another tuner.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Where to write it. Default: FILE.toml beside a T1 file, FILE.zip here for a recording.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def import_(*, file: Path, output: Path | None, force: bool) -> None:
    """Import FILE of another tuner: T1 input as a kernel file, T4 results and caches as recordings.

    What FILE is, its content tells. Texts of it are parsed, and never run.
    """
    from tuner.recordings.exchange.t1_t4 import read_foreign

    foreign = read_foreign(file)
    stem = file.name.removesuffix(".gz").removesuffix(".json") or file.name
    target = output or (file.with_name(f"{stem}.toml") if foreign.space is None else Path(f"{stem}.zip"))
    if target.exists() and not force:
        raise InputError(f"{target}: is there already; --force replaces it, --output names another file")
    if foreign.space is not None and target.exists() and not target.is_file():
        raise InputError(f"{target}: is not a file; --output names another")
    try:
        lines = (
            _import_kernel(foreign, file, target) if foreign.space is None else _import_space(foreign, target)
        )
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}") from error
    for line in lines:
        echo(line)


def _import_kernel(foreign: "ForeignFile", file: Path, target: Path) -> list[str]:
    from tuner.kernel_files.kernel_document import document_of_text
    from tuner.kernel_files.source_folder import read_text
    from tuner.recordings.exchange.t1_t4 import kernel_of_t1, source_of_t1

    try:
        source = file.parent / source_of_t1(foreign.document)
        text = read_text(source, f"{file}: KernelSpecification.KernelFile")
        named = os.path.relpath(source.absolute(), target.absolute().parent)
        kernel = kernel_of_t1(foreign.document, text, named)
        document_of_text(file, kernel.toml)
    except ValueError as error:
        raise InputError(f"{file}: {error}") from error
    write_whole(target, kernel.toml, f"{target}: cannot be written")
    return [
        f"{target}: kernel {kernel.name}, from the T1 file {file}",
        *(f"  {note}" for note in kernel.notes),
        f"next: tuner kernels check {target}",
    ]


def _import_space(foreign: "ForeignFile", target: Path) -> list[str]:
    from tuner.recordings.files import write
    from tuner.recordings.other_tuners import LEFT_OUT

    space = foreign.space
    if space is None:
        raise TypeError("not a recording")
    write(target, [space])
    failed = sum(not measurement.ok for measurement in space.trials.values())
    counted = f"{len(space.trials):,} trials, {failed:,} of them failed"
    lines = [f"{target}: {' + '.join(space.names)} on {space.identity.name}, from {foreign.kind}: {counted}"]
    left_out = space.provenance.get(LEFT_OUT, ())
    lines += [f"  left out: {sentence}" for sentence in left_out[:_NAMED]]
    if len(left_out) > _NAMED:
        lines.append(f"  left out: {len(left_out) - _NAMED:,} more")
    if foreign.cut_off:
        lines.append("  its end was missing, as of a tuning that was stopped; what is there was read")
    lines.append(f"next: tuner run --device replay:{target}")
    return lines


@click.command(short_help="Write the answer or the trials of runs for a build or a tool.")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default="flags",
    show_default=True,
    is_eager=True,  # --output asks for it
    help="flags, header, c-selector are for builds, vllm and sglang read fused-MoE files, triton is a list of"
    " triton.Config in Python, json is of Kernel Tuner, t4 of the autotuning community.",
)
@click.option(
    "--output",
    metavar="FILE",
    callback=_file_or_folder,
    help="Default: standard output. vllm, sglang: or a folder, for files of the names that are looked for.",
)
@click.option("--workload", metavar="NAME", help="flags, header: of this workload only, of several.")
@search_option("max_slowdown", text=FRONT_CHOICE)
@click.option(
    "--objective", metavar="NAME", help="What the kernel was trained or tuned for, where for several."
)
@click.option(
    "--cubins",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="c-selector: compile the versions, too, for --arch.",
)
@click.option("--arch", metavar="SM", help="c-selector: of the cubins, as sm_90.")
@kernel_option
@database_option
@lock_option
def export(
    *,
    runs: tuple[str, ...],
    kind: str,
    output: str | None,
    workload: str | None,
    max_slowdown: float | None,
    objective: str | None,
    cubins: Path | None,
    arch: str | None,
    kernel_files: tuple[Path, ...],
    database: Path | None,
    lock: Path | None,
) -> None:
    """Write the answer or the trials of each RUN for a build or another tool.

    RUN is a number of `tuner history`, a document of `tuner run --json`, a recording, or a kernel, as fft or
    fft:N=64, which stands for its locked answers, else its newest, at all sizes or at these. Without one, the
    newest run with an answer is written, with --lock all of that file. As a recording of this tuner, with
    launches and joules, `tuner db export` writes it.

    With --format c-selector, RUN is a kernel that was trained (`tuner train`). The C header picks a version
    by the problem sizes, and says what the compiler is told for each.
    """
    if workload is not None and kind not in _FOR_BUILDS:
        raise InputError("--workload: is for --format flags and header")
    if max_slowdown is not None and kind in _NO_ANSWERS:
        raise InputError(f"--max-slowdown: chooses an answer, and --format {kind} is not of one")
    if lock is not None and kind == "c-selector":
        raise InputError("--lock: has answers, and --format c-selector is of a trained kernel")
    if kind == "c-selector":
        text = _selector(runs, objective, cubins, arch, kernel_files, database=database)
    elif cubins or arch:
        raise InputError("--cubins and --arch are for --format c-selector")
    else:
        exported = _runs(
            runs,
            kind,
            kernel_files,
            database=database,
            max_slowdown=max_slowdown,
            objective=objective,
            lock=lock,
        )
        if workload is not None:
            having = [run for run in exported if workload in run.workloads]
            exported = [run.of_workload(workload) for run in having or exported]
        if kind == "flags" and output is None:
            _refuse_several(exported)
        text = _moe(exported, kind, output) if kind in _FUSED_MOE else _written(exported, kind)
    if not text:  # files were written
        return
    if output is None or output == "-":
        if sys.stdout is None:  # closed by who called
            raise InputError("there is no standard output; --output names a file")
        sys.stdout.write(plain(text))
        sys.stdout.flush()
        return
    write_whole(Path(output), text, f"--output {output}")


def _runs(
    names: tuple[str, ...],
    kind: str,
    files: tuple[Path, ...],
    *,
    database: Path | None,
    max_slowdown: float | None,
    objective: str | None,
    lock: Path | None,
) -> "list[ExportedRun]":
    """The runs that are named; without a name the newest with an answer that the format has room for."""
    from tuner.database.answer_lock import in_force
    from tuner.kernel_files.catalog import Catalog
    from tuner.recordings.files import SHIPPED

    names, files = with_files(names, files)
    kernels = [one for one in names if not (one.isdecimal() or one in SHIPPED or Path(one).is_file())]
    if lock is not None and (len(kernels) < len(names) or max_slowdown is not None):
        raise InputError(f"--lock {lock}: has answers of kernels; leave out other RUNs, and --max-slowdown")
    if objective is not None and not kernels and lock is None:
        raise InputError("--objective: chooses among the answers of a kernel, and no RUN is the name of one")
    if not names and lock is None:
        names = (newest_answered(database, alone=kind == "kernel-launcher"),)
        echo(f"run {names[0]}, the newest with an answer", err=True)
    catalog = Catalog.load(files)
    held = in_force(lock) if lock is not None or (kernels and max_slowdown is None) else None
    runs: list[ExportedRun] = []
    for name in names or ("",):  # empty for all that is locked
        of_kernel = name in kernels or not name
        locked = [] if held is None or not of_kernel else _locked(held, name, catalog, objective)
        if lock is not None and not locked:
            raise InputError(f"--lock {lock}: has no answer of {name or 'a kernel that is here'}")
        numbers = _answers_of(name, database, objective) if of_kernel and not locked else [name]
        runs += locked or [_run(number, catalog, database, max_slowdown) for number in numbers]
    return runs


def _locked(held: "LockInForce", name: str, catalog: "Catalog", objective: str | None) -> "list[ExportedRun]":
    """The locked answers of a kernel that is here as it was locked; of all kernels where the name is empty.

    Raises:
        InputError: they are for several objectives, or one is of another kernel and the lock is frozen.
    """
    from tuner.model.objective import COVERAGE
    from tuner.recordings.exchange.exported_run import held_against_kernels, run_of_document

    path = held.lock.path
    answers = [one for one in held.lock.answers if not name or _is_of(name, one.names)]
    if not answers:
        return []
    goal = _goal(str(path), (one.objective for one in answers), objective)
    runs: list[ExportedRun] = []
    for one in answers:
        if one.objective.partition(" ")[0] != goal:
            continue
        best = {
            "configurations": {part.name: part.configuration for part in one.workload},
            "status": "ok",
            "time_s": one.time.value,
            "energy_j": None if one.energy is None else one.energy.value,
            "energy_j_uncertainty": None if one.energy is None else one.energy.half / COVERAGE,
            "clock_mhz": one.clock_mhz,
            "power_limit_w": one.power_limit_w,
        }
        document = {
            "device": {"name": one.gpu},
            "objective": one.objective,
            "workloads": [{"name": part.name, "batch": part.batch} for part in one.workload],
            "sources": {part.name.partition(":")[0]: part.kernel for part in one.workload},
            "best": best,
            "trials": [best],
        }
        run, unknown = held_against_kernels(run_of_document(document, str(path)), document, catalog.kernels)
        why = f"{path}: {one}: the kernel is not here as it was locked; RUN or --kernel names its file"
        if unknown and held.frozen:
            raise InputError(why)
        if unknown:
            echo(f"left out: {why}", err=True)
        else:
            runs.append(run)
    return runs


def _is_of(kernel: str, workloads: Iterable[str]) -> bool:
    """True where a workload is of a kernel, at the sizes that are named."""
    from tuner.model.records import WorkloadName

    named = WorkloadName.parse(kernel)
    each = map(WorkloadName.parse, workloads)
    return any(one.kernel == named.kernel and set(named.sizes) <= set(one.sizes) for one in each)


def _goal(whose: str, objectives: Iterable[str], objective: str | None) -> str:
    """The objective that is named; else the only one that answers are for."""
    goals = sorted({one.partition(" ")[0] for one in objectives})
    if objective not in goals and (objective is not None or len(goals) > 1):
        raise InputError(f"{whose}: has answers for {', '.join(goals)}; --objective chooses one of them")
    return objective or goals[0]


def _answers_of(name: str, database: Path | None, objective: str | None) -> list[str]:
    """The runs of the newest answers of a kernel, at the sizes that are named: for each GPU and workload.

    Raises:
        InputError: there are none, or they are for several objectives.
    """
    from tuner.cli.db import reading

    kernel = name.partition(":")[0]
    with reading(database) as store:
        found = [] if store is None else list(store.answered_alone(kernel))
    if not found:
        raise InputError(
            f"{name}: neither the number of a run (`tuner history`), nor a file or a kernel with answers here"
        )
    stored = list(dict.fromkeys(map(_workload, found)))
    found = [run for run in found if _is_of(name, [_workload(run)])]
    if not found:
        more = ", ..." if len(stored) > _NAMED else ""
        raise InputError(f"{name}: has no answer; there are {', '.join(stored[:_NAMED])}{more}")
    goal = _goal(name, (run.objective for run in found), objective)
    found = [run for run in found if run.objective.partition(" ")[0] == goal]
    sources = found[0].conditions["sources"].get(kernel)
    fresh = [run for run in found if run.conditions["sources"].get(kernel) == sources]
    newest: dict[tuple[str, str], int] = {}
    for run in sorted(fresh, key=_later):
        newest.setdefault((_workload(run), run.conditions["device"]["name"]), run.id)
    if left_out := set(map(_workload, found)) - {workload for workload, _ in newest}:
        told = ", ".join(sorted(left_out))
        echo(f"{told}: left out, as the source of {kernel} has changed since", err=True)
    return [str(run) for run in sorted(newest.values())]


def _workload(run: "StoredRun") -> str:
    """The only workload of a run."""
    ((name, _),) = run.conditions["workloads"]
    return name


def _later(run: "StoredRun") -> tuple[str, bool, int]:
    """The order of answers of one workload: back to back and finished before others, the newest first."""
    from tuner.model.objective import timing_of
    from tuner.model.records import RunStatus

    return timing_of(run.objective), run.status is not RunStatus.FINISHED, -run.id


def _refuse_several(runs: "Sequence[ExportedRun]") -> None:
    """Refuse flags of several workloads or GPUs where a program reads them: they are of no one command.

    Raises:
        InputError: standard output is a pipe or a file, and the flags take more than a line.
    """
    several = len({run.device for run in runs}) > 1
    names = [f"{name} on {run.device}" if several else name for run in runs for name in run.workloads]
    if len(names) < 2 or (sys.stdout is not None and sys.stdout.isatty()):  # noqa: PLR2004 - several
        return
    one = f"--workload {shlex.quote(names[0])}" if len(runs) == 1 else "one number of `tuner history`"
    raise InputError(
        f"flags of {len(names)} workloads do not fit one command of a compiler ({', '.join(names)}): {one}"
        " gives those of one, --format header macros of all, --output - a line for each below its name"
    )


def _selector(
    names: Sequence[str],
    objective: str | None,
    cubins: Path | None,
    arch: str | None,
    files: tuple[Path, ...],
    *,
    database: Path | None,
) -> str:
    """The header of a trained kernel; its cubins are written on the way."""
    from tuner.cli.db import reading
    from tuner.kernel_files.catalog import Catalog
    from tuner.studies.learning import CompiledLaunch, selector_header, trained_model, write_cubins

    if not names:
        raise InputError(
            "--format c-selector: name a kernel that was trained, as in"
            " `tuner export mvmul --format c-selector`"
        )
    if len(names) > 1:
        raise InputError(f"--format c-selector: a header is of one kernel, {len(names)} are named")
    if (cubins is None) != (arch is None):
        raise InputError("--cubins and --arch go together, as --cubins build --arch sm_90")
    (name,), files = with_files((names[0],), files)
    kernels = Catalog.load(files).kernels
    name = name.partition(":")[0]
    with reading(database) as store:
        if store is None:
            raise InputError(f"{name} has no trained model here; `tuner train {name}` makes one")
        model = trained_model(store, name, objective)
    compiled: list[CompiledLaunch] = []
    if cubins is not None and arch is not None:
        if name not in kernels:
            raise InputError(f"--cubins: no kernel {name} is in the catalogue; name its file with --kernel")
        compiled = write_cubins(model, kernels[name], cubins, arch)
        for path in dict.fromkeys(one.path for one in compiled):
            echo(f"{path}: written", err=True)
    kernel = kernels.get(name)
    if kernel is None or kernel.fingerprint != model.source:
        why = "name its file with --kernel" if kernel is None else "its source has changed since the training"
        echo(f"{name}: the header has no options of the compiler: {why}", err=True)
    return selector_header(model, kernel, compiled)


def _moe(runs: "Sequence[ExportedRun]", kind: str, output: str | None) -> str:
    """The text of the fused-MoE file of runs; empty where files were written to a folder.

    Raises:
        InputError: they make several files and no folder is named, or a file is there.
    """
    from tuner.recordings.exchange.build_files import moe_files

    files = moe_files(runs, kind)
    if output is None or not Path(output).is_dir():
        if len(files) > 1:
            notes = "; ".join(file.note for file in files)
            raise InputError(f"these runs make {len(files)} files, and --output names no folder: {notes}")
        if output is None or files[0].name not in ("", Path(output).name):
            echo(files[0].note, err=True)
        return files[0].text()
    folder = Path(output)
    if kind == "sglang" and not re.fullmatch(r"triton_\d+(_\d+)*", folder.absolute().name):
        raise InputError(
            f"--output {folder}: sglang looks in a folder called after its version of Triton, as"
            " configs/triton_3_6_0 of SGLANG_MOE_CONFIG_DIR; name such a folder"
        )
    for file in files:
        target = folder / file.name
        if not file.name:
            raise InputError(f"--output {folder}: {file.note}; name the file, too")
        if target.exists():
            raise InputError(f"{target}: is there already; --output with its name replaces it")
    for file in files:
        write_whole(folder / file.name, file.text(), f"--output {folder}")
        echo(f"{folder / file.name}: written, {len(file.rows)} numbers of tokens")
    return ""


def _written(runs: "Sequence[ExportedRun]", kind: str) -> str:
    if kind in _FOR_BUILDS:
        from tuner.recordings.exchange import build_files

        for note in build_files.notes(runs) if kind == "flags" else ():
            echo(note, err=True)
        return build_files.flags(runs) if kind == "flags" else build_files.header(runs)
    if kind in ("kernel-launcher", "triton"):
        from tuner.recordings.exchange.build_files import triton_configs, wisdom

        return wisdom(runs) if kind == "kernel-launcher" else triton_configs(runs)
    if kind == "json":
        from tuner.recordings.exchange.exported_run import results_document

        return json.dumps(results_document(runs), indent=2, allow_nan=False) + "\n"
    from tuner.recordings.exchange.t1_t4 import results_of

    if len(runs) > 1:
        raise InputError(f"--format t4: a file is of one run, {len(runs)} are named")
    return json.dumps(results_of(runs[0]), indent=2, allow_nan=False) + "\n"


def _run(name: str, catalog: "Catalog", database: Path | None, max_slowdown: float | None) -> "ExportedRun":
    from tuner.kernel_files.build_record import with_kernels_of
    from tuner.model.run_document import program_of
    from tuner.recordings.exchange.exported_run import held_against_kernels, run_of_document, run_of_space
    from tuner.recordings.files import SHIPPED, matching, open_recording
    from tuner.report.answer import within_slowdown

    path = Path(name)
    if path.suffix == ".lock" and path.is_file():
        raise InputError(f"{name}: is a lock file; --lock {name} reads it")
    if name in SHIPPED or (path.is_file() and not _is_document(path)):
        recording = open_recording(name if name in SHIPPED else path)
        if max_slowdown is not None:
            raise InputError(f"--max-slowdown: chooses a point of a Pareto front; {name} is a recording")
        return run_of_space(recording.space(matching(recording, ())))
    document = within_slowdown(document_of(name, database), max_slowdown)
    if program_of(document) is not None:
        number = document.get("run")
        raise InputError(f"{name}: tuned a program, no kernel; tuner program exec --use {number} runs it")
    run = run_of_document(document, name if path.is_file() else f"run {name}")
    if not path.is_file() and not document.get("merged_from"):  # else its paths are of another host
        catalog, _ = with_kernels_of(catalog, document, document.get("run"))
    checked, unknown = held_against_kernels(run, document, catalog.kernels)
    if unknown and document.get("merged_from"):
        merged = f"{', '.join(unknown)}: was merged, and its kernel is not here as it was tuned"
        echo(f"{merged}: nobody has looked at its values; --kernel names the kernel file", err=True)
    return checked


def _is_document(path: Path) -> bool:
    """Return True if a file is a document of a run rather than a recording."""
    try:
        content = load_json(read_bytes(path, JSON_BYTES))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "cache" not in content
