"""From trials to a model: features of a kernel, methods, accuracy, versions."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache

from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.size_condition import size_condition, written_out
from tuner.model.device import DeviceIdentity, DeviceLimits
from tuner.model.plan import Configuration, Workload
from tuner.prediction.accuracy import Accuracy, LeftOut, leave_one_out
from tuner.prediction.features import FeatureTable, LaunchGeometry
from tuner.prediction.method import Predictor, SinglePredictor, forest_of
from tuner.prediction.methods import GAdaptPredictor
from tuner.prediction.model import SelectionModel, TrainedDevice
from tuner.prediction.portfolio import Allowed, Portfolio, inputs_between, portfolio_of
from tuner.prediction.training_set import Sizes, TrainingSet

METHODS = ("forest", "g-adapt")
BETWEEN = 300  # inputs between the measured ones, of which the forest tells the tree

Progress = Callable[[int, int], None]
"""Hears how many inputs of how many were left out."""


def feature_table(kernel: KernelFile, limits: DeviceLimits | None) -> FeatureTable:
    """The features of a kernel on a device."""
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
        1 if limits is None else limits.multiprocessors,
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
    """What every method has learned from trials, the chosen one first.

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
    """What ranks the configurations of an input, by one method.

    Raises:
        InputError: as ``predictors``.
    """
    return forest_of(table, data) if method == "forest" else GAdaptPredictor(data, kernel.tunables)


def accuracies(
    table: FeatureTable, kernel: KernelFile, data: TrainingSet, method: str, progress: Progress
) -> dict[str, list[LeftOut]]:
    """What every method predicts for inputs that it has not seen, one left out at a time.

    Raises:
        InputError: as ``predictors``.
    """
    found: dict[str, list[LeftOut]] = {}
    between, allowed = between_of(kernel, data), allowed_of(kernel)

    def learn(others: TrainingSet) -> dict[str, Predictor]:
        return predictors(table, kernel, others, method, between=between, allowed=allowed)

    for number, one in enumerate(leave_one_out(data, learn, allowed), start=1):
        for name, left_out in one.items():
            found.setdefault(name, []).append(left_out)
        progress(number, len(data.inputs))
    return found


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
    """The model that is kept: versions and tree, with what they were learned from.

    Args:
        kernel: the kernel.
        device: where it was measured.
        data: all trials.
        learned: of all trials, by ``predictors``.
        left_out: by ``accuracies``.
        objective: name.
        method: ``forest`` or ``g-adapt``.
    """
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
