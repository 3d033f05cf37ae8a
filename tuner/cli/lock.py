"""``tuner lock``: tuned answers as a file that a repository commits, and its check on this GPU."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli import completion
from tuner.cli.options import (
    NamedPath,
    database_option,
    device_option,
    kernel_option,
    search_option,
    with_files,
)
from tuner.cli.output import echo, write_whole
from tuner.model.errors import InputError

if TYPE_CHECKING:
    from tuner.database.answer_lock import LockedAnswer

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
