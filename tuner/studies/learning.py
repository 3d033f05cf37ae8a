"""From trials to a model: features, methods, accuracy, versions, and the files for a build."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.database.best_known import decoded_models
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.size_condition import ALWAYS, NEVER, launch_conditions, size_condition, written_out
from tuner.model.errors import InputError
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Configuration, Stage, Workload
from tuner.policies.independent import places
from tuner.prediction.c_selector import c_selector
from tuner.prediction.methods import GAdaptPredictor, Predictor, SinglePredictor, forest_of
from tuner.prediction.model import Accuracy, LeftOut, Missed, SelectionModel, TrainedDevice, leave_one_out
from tuner.prediction.portfolio import Allowed, Portfolio, inputs_between, portfolio_of
from tuner.prediction.training_set import FeatureTable, InputTrials, LaunchGeometry, Sizes, TrainingSet

METHODS = ("forest", "g-adapt")
BETWEEN = 300  # inputs between the measured ones, of which the forest tells the tree

Progress = Callable[[int, int], None]
"""Function that is called with the number of inputs left out so far, and of all."""


def feature_table(kernel: KernelFile, multiprocessors: int | None) -> FeatureTable:
    """The features of a kernel on a device with so many multiprocessors, if they are known."""
    texts = {
        name: () if isinstance(values, range) or not isinstance(values[0], str) else tuple(map(str, values))
        for name, values in kernel.sizes.items()
    }

    @lru_cache(maxsize=512)
    def workload(sizes: tuple[tuple[str, int | str], ...]) -> Workload:
        return kernel.workload(dict(sizes))

    @lru_cache(maxsize=100_000)
    def launches(
        sizes: tuple[tuple[str, int | str], ...], configuration: Configuration
    ) -> tuple[LaunchGeometry, ...]:
        at = workload(sizes)
        if kernel.broken_rule(at, configuration) is not None:
            return ()  # it was measured at other inputs; here nobody takes it, and its grid may be none
        stages = kernel.launches(at, configuration)
        return tuple(
            LaunchGeometry(_product(stage.grid), _product(stage.block), stage.shared_bytes)
            for stage in stages
            if not stage.setup and stage.block is not None
        )

    return FeatureTable(
        texts,
        kernel.tunables,
        multiprocessors or 1,
        lambda sizes, configuration: launches(tuple(sizes.items()), configuration),
    )


def _product(extent: Sequence[int]) -> int:
    x, y, z = extent
    return x * y * z


def allowed_of(kernel: KernelFile) -> Allowed:
    """The configurations of a kernel that are allowed at an input, written out."""

    @lru_cache(maxsize=2048)
    def allowed(sizes: tuple[tuple[str, int | str], ...]) -> frozenset[Configuration]:
        space = kernel.space(kernel.workload(dict(sizes)))
        return frozenset(written_out(kernel.recipe, one) for one in space)

    return lambda sizes: allowed(tuple(sizes.items()))


def between_of(kernel: KernelFile, data: TrainingSet) -> list[Sizes]:
    """Inputs between the measured ones, of sizes that the kernel takes."""
    listed = [name for name, values in kernel.sizes.items() if not isinstance(values, range)]
    return inputs_between(data, BETWEEN, listed=listed)


def predictors(
    table: FeatureTable,
    kernel: KernelFile,
    data: TrainingSet,
    method: str,
    *,
    between: Sequence[Sizes] | None = None,
    allowed: Allowed | None = None,
) -> dict[str, Predictor]:
    """Return the predictors that every method learns from trials, the chosen method first.

    ``forest`` ranks all configurations; ``versions`` is the portfolio with its tree, which a forest tells of
    what was not measured; ``g-adapt`` is the paper's; ``one for all`` takes one configuration everywhere.

    Args:
        table: features.
        kernel: the kernel.
        data: its trials.
        method: one of ``METHODS``.
        between: inputs of which the forest tells the tree; None for some between those of the trials.
        allowed: tells what is allowed at an input; None for the kernel's own, asked anew.

    Raises:
        InputError: scikit-learn is not installed, and the method is ``forest``.
    """
    others: dict[str, Predictor] = {
        "g-adapt": GAdaptPredictor(data, kernel.tunables),
        "one for all": SinglePredictor(data),
    }
    allowed = allowed or allowed_of(kernel)
    if method == "g-adapt":
        return {"versions": portfolio_of(data, allowed=allowed), **others}
    forest = forest_of(table, data)
    between = between_of(kernel, data) if between is None else between
    versions = portfolio_of(data, forest=forest, between=between, allowed=allowed)
    return {"forest": forest, "versions": versions, **others}


def ranking(table: FeatureTable, kernel: KernelFile, data: TrainingSet, method: str) -> Predictor:
    """Return the predictor that ranks the configurations of an input, by one method.

    Raises:
        InputError: as ``predictors``.
    """
    return forest_of(table, data) if method == "forest" else GAdaptPredictor(data, kernel.tunables)


_WHOLE = 0.95  # of the configurations that are known to be valid: a space is measured whole
_LOOKS = 8  # at a space that was measured whole, as training looks at others


def missed_of(
    table: FeatureTable, kernel: KernelFile, data: TrainingSet, method: str, *, guided: bool
) -> Callable[[InputTrials], Missed]:
    """Return a function that tells how far the best trial of an input is from the best of its space.

    Where no space was measured whole, nobody knows: the best trial is taken for the best.

    Spaces that were measured whole are looked at again as the others were, by as large a share of them: the
    configurations that a model of the other inputs ranks first, and some at random. What the best of these
    costs by the best of all is what other inputs miss on average.

    Args:
        table: features.
        kernel: the kernel.
        data: its trials.
        method: one of ``METHODS``.
        guided: inputs were looked at by a model; otherwise at random.
    """
    allowed, known = allowed_of(kernel), frozenset(data.configurations)
    shares = {
        tuple(one.sizes.items()): len(one.configurations)
        / max(1, len(known.intersection(allowed(one.sizes))))
        for one in data.inputs
    }

    def share(one: InputTrials) -> float:
        return shares[tuple(one.sizes.items())]

    whole = [one for one in data.inputs if share(one) >= _WHOLE]
    scores: list[list[float] | None] = [None] * len(whole)
    if guided and 0 < len(whole) < len(data.inputs):
        for place, one in enumerate(whole):
            others = data.without(one)
            if not others.inputs:
                continue
            predictor = ranking(table, kernel, others, method)
            scores[place] = [float(score) for score in predictor.scores(one.sizes, one.configurations)]

    @lru_cache
    def factor(part: float) -> float:
        found = []
        for one, ranked in zip(whole, scores, strict=True):
            size = len(one.configurations)
            for seed in range(_LOOKS):
                looked_at = places(size, ranked, max(1, round(part * size)), seed)
                found.append(min(float(one.slowdowns[place]) for place in looked_at))
        valid = [slowdown for slowdown in found if math.isfinite(slowdown)]
        return sum(valid) / len(valid) if valid else 1.0

    def missed(one: InputTrials) -> Missed:
        if share(one) >= _WHOLE:
            return Missed(whole=True)
        return Missed(factor(round(share(one), 2)) if whole else 1.0)

    return missed


def accuracies(
    table: FeatureTable,
    kernel: KernelFile,
    data: TrainingSet,
    method: str,
    progress: Progress,
    *,
    guided: bool = True,
) -> dict[str, list[LeftOut]]:
    """Return the predictions of every method for unseen inputs, one left out at a time.

    Raises:
        InputError: as ``predictors``.
    """
    by_method: dict[str, list[LeftOut]] = {}
    between, allowed = between_of(kernel, data), allowed_of(kernel)
    missed = missed_of(table, kernel, data, method, guided=guided)

    def learn(others: TrainingSet) -> dict[str, Predictor]:
        return predictors(table, kernel, others, method, between=between, allowed=allowed)

    for number, predicted in enumerate(leave_one_out(data, learn, allowed, missed), start=1):
        for method_name, left_out in predicted.items():
            by_method.setdefault(method_name, []).append(left_out)
        progress(number, len(data.inputs))
    return by_method


def model_of(
    kernel: KernelFile,
    device: DeviceIdentity,
    data: TrainingSet,
    *,
    learned: Mapping[str, Predictor],
    left_out: Mapping[str, Sequence[LeftOut]],
    objective: str,
    method: str,
) -> SelectionModel:
    """The model as it is stored: versions and tree, with what they were learned from."""
    portfolio = learned["versions"]
    assert isinstance(portfolio, Portfolio)  # noqa: S101 - as predictors makes it
    ranked = method if method in learned else "g-adapt"
    return SelectionModel(
        kernel=kernel.name,
        source=kernel.fingerprint,
        device=TrainedDevice.of(device),
        objective=objective,
        method=method,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        trials=data.trials,
        inputs=tuple(one.sizes for one in data.inputs),
        ranges=data.ranges(),
        accuracy=Accuracy.of(left_out.get("versions", ())),
        forest_accuracy=Accuracy.of(left_out.get(ranked, ())),
        portfolio=portfolio,
        conditions=tuple(size_condition(kernel.recipe, version) for version in portfolio.versions),
    )


# --- A trained model for a build: the C header of its selector, and the compiled versions.


def trained_model(store: Store, kernel: str, objective: str | None) -> SelectionModel:
    """The model of a kernel; of several the newest.

    Args:
        store: the database.
        kernel: name.
        objective: None for any, where all are of one.

    Raises:
        InputError: there is none, or there are several objectives and none is named.
    """
    models = decoded_models(Ledger(store.database).models(kernel))
    objectives = sorted({model.objective for model in models})
    if not models:
        raise InputError(f"{kernel} has no trained model here; `tuner train {kernel}` makes one")
    if objective is None and len(objectives) > 1:
        raise InputError(
            f"{kernel} was trained for {', '.join(objectives)}: name one, --objective {objectives[0]}"
        )
    chosen = [model for model in models if objective in (None, model.objective)]
    if not chosen:
        raise InputError(f"{kernel} was trained for {', '.join(objectives)}, not for {objective}")
    return max(chosen, key=lambda model: model.date)


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
    conditions = [launch_conditions(kernel.recipe, version) for version in model.portfolio.versions]
    entries: dict[str, dict[int, str]] = {}
    for version, stages in enumerate(launches):
        for stage in stages:
            entries.setdefault(stage.name, {})[version] = stage.entry
    options = [list(dict.fromkeys(option for one in stages for option in one.options)) for stages in launches]
    launched = {
        name: [of_version.get(name, ALWAYS) for of_version in conditions]
        for name in entries
        if any(of_version.get(name, ALWAYS) not in (ALWAYS, NEVER) for of_version in conditions)
    }
    expanded = kernel.source_to_expand or ""
    return c_selector(model, options, entries, functions, expanded=expanded, launched=launched)


def version_launches(model: SelectionModel, kernel: KernelFile) -> list[tuple[Stage, ...]]:
    """The launches of every version: all that some trained input has which allows it, each once.

    Raises:
        InputError: no trained input allows a version, or has a launch of it; or what is compiled depends on
            the sizes, so that versions are not enough.
    """
    workloads = [kernel.workload(dict(sizes)) for sizes in model.inputs]
    versions = []
    for number, version in enumerate(model.portfolio.versions):
        allowed = ((workload, kernel.allowed(workload, version)) for workload in workloads)
        launches = [kernel.launches(workload, one) for workload, one in allowed if one is not None]
        if not launches:
            raise InputError(f"{model.kernel}: no trained input allows version {number}; train it again")
        found: dict[str, Stage] = {}
        for stage in itertools.chain.from_iterable(launches):
            first = found.setdefault(stage.name, stage)
            if (stage.entry, stage.options) != (first.entry, first.options):
                raise InputError(
                    f"{model.kernel}: sizes are compiled into its code, so that a version is no single"
                    " program; a c-selector needs sizes that are parameters"
                )
        unseen = [
            name
            for name, condition in launch_conditions(kernel.recipe, version).items()
            if condition != NEVER and name not in found
        ]
        if unseen:
            raise InputError(
                f"{model.kernel}: no trained input launches {unseen[0]} of version {number}, as other"
                " sizes do; train it with one of those, --input"
            )
        versions.append(tuple(found[one.name] for one in kernel.recipe.stages if one.name in found))
    return versions


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
