"""A trained model for a build: the C header of its selector, and the compiled versions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.database.trained import decoded_models
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError
from tuner.model.plan import Stage
from tuner.prediction.c_selector import c_selector
from tuner.prediction.model import SelectionModel


def trained_model(store: Store, kernel: str, objective: str | None) -> SelectionModel:
    """The model of a kernel; of several the newest.

    Args:
        store: the database.
        kernel: name.
        objective: None for any, where all are of one.

    Raises:
        InputError: there is none, or there are several objectives and none is named.
    """
    found = decoded_models(Ledger(store.database).models(kernel))
    objectives = sorted({model.objective for model in found})
    if not found:
        raise InputError(f"{kernel} has no trained model here; `tuner train {kernel}` makes one")
    if objective is None and len(objectives) > 1:
        raise InputError(
            f"{kernel} was trained for {', '.join(objectives)}: name one, --objective {objectives[0]}"
        )
    chosen = [model for model in found if objective in (None, model.objective)]
    if not chosen:
        raise InputError(f"{kernel} was trained for {', '.join(objectives)}, not for {objective}")
    return max(chosen, key=lambda model: model.date)


def training_runs(store: Store, model: SelectionModel) -> list[int]:
    """The runs of the inputs that a model was trained on, one for each, in their order."""
    found: dict[str, int] = {}
    for run in store.answered_alone(model.kernel):  # the newest first
        ((name, _),) = run.conditions["workloads"]
        of_model = run.conditions["sources"].get(model.kernel) == model.source
        if of_model and run.conditions["device"]["uuid"] == model.device.uuid:
            found.setdefault(name, run.id)
    return sorted(found.values())


@dataclass(frozen=True)
class CompiledLaunch:
    """One launch of a version, compiled.

    Attributes:
        version: number of the version.
        stage: name of the launch.
        function: mangled name of the function in the cubin.
        path: of the cubin.
    """

    version: int
    stage: str
    function: str
    path: Path


def selector_header(
    model: SelectionModel, kernel: KernelFile | None, compiled: Sequence[CompiledLaunch] = ()
) -> str:
    """The header, with what the compiler is told for each version, and the functions of its cubins.

    Args:
        model: versions and tree.
        kernel: the kernel as it is now; the header has no options where it is None or has changed.
        compiled: launches of the versions.
    """
    if kernel is None or kernel.fingerprint != model.source:
        return c_selector(model)
    functions = {
        stage: {one.version: one.function for one in compiled if one.stage == stage}
        for stage in dict.fromkeys(one.stage for one in compiled)
    }
    launches = version_launches(model, kernel)
    entries: dict[str, dict[int, str]] = {}
    for version, stages in enumerate(launches):
        for stage in stages:
            entries.setdefault(stage.name, {})[version] = stage.entry
    options = [list(dict.fromkeys(option for one in stages for option in one.options)) for stages in launches]
    return c_selector(model, options, entries, functions, expanded=kernel.source_to_expand or "")


def version_launches(model: SelectionModel, kernel: KernelFile) -> list[tuple[Stage, ...]]:
    """The launches of every version, at the first trained input that allows it.

    Raises:
        InputError: no trained input allows a version, or what is compiled depends on the sizes, so that
            versions are not enough.
    """
    workloads = [kernel.workload(dict(sizes)) for sizes in model.inputs]
    found = []
    for place, version in enumerate(model.portfolio.versions):
        allowed = ((one, kernel.allowed(one, version)) for one in workloads)
        launches = [kernel.launches(one, version) for one, version in allowed if version is not None]
        if not launches:
            raise InputError(f"{model.kernel}: no trained input allows version {place}; train it again")
        if any(list(map(_code, one)) != list(map(_code, launches[0])) for one in launches[1:]):
            raise InputError(
                f"{model.kernel}: sizes are compiled into its code, so that a version is no single program;"
                " a c-selector needs sizes that are parameters"
            )
        found.append(launches[0])
    return found


def _code(stage: Stage) -> tuple[str, tuple[str, ...]]:
    return stage.entry, stage.options


def write_cubins(
    model: SelectionModel, kernel: KernelFile, folder: Path, architecture: str
) -> list[CompiledLaunch]:
    """Compile every version, and write a cubin for each of its launches.

    Args:
        model: the versions.
        kernel: the kernel that the model was trained on.
        folder: of the files ``KERNEL-VERSION-STAGE.cubin``; made if it is not there.
        architecture: as ``sm_90``.

    Raises:
        InputError: the kernel has changed since, or a folder or file cannot be written.
        CompileError: a version does not compile.
    """
    if kernel.fingerprint != model.source:
        raise InputError(f"{model.kernel}: its source has changed since the training; train it again")
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with Compiler(architecture) as compiler:
            for place, stages in enumerate(version_launches(model, kernel)):
                for stage in stages:
                    compiled: CompiledStage = compiler.compile_one(stage)
                    path = folder / f"{model.kernel}-{place}-{stage.name.replace(' ', '-')}.cubin"
                    path.write_bytes(compiled.cubin)
                    written.append(CompiledLaunch(place, stage.name, compiled.lowered_name, path))
    except OSError as e:
        raise InputError(f"{folder}: cannot be written: {e.strerror}") from e
    return written
