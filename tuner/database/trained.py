"""Trained models as answers: which one serves a workload that nobody tuned, and what to know beside."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from tuner.database.ranking import AnswerQuery
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.size_condition import is_allowed
from tuner.model.errors import InputError
from tuner.model.plan import Configuration, Workload
from tuner.prediction.model import SelectionModel

_LOG = logging.getLogger(__name__)


def decoded_models(documents: Iterable[Mapping[str, object]]) -> tuple[SelectionModel, ...]:
    """The models that can be understood; of the others each is logged."""
    return tuple(model for document in documents if (model := _decoded(document)) is not None)


def _decoded(document: Mapping[str, object]) -> SelectionModel | None:
    try:
        return SelectionModel.of(document)
    except InputError as error:
        _LOG.warning("%s", error)
        return None


def predicted(
    query: AnswerQuery, kernel: KernelFile, workload: Workload, models: Sequence[SelectionModel]
) -> tuple[Configuration, str] | None:
    """The configuration that a model picks, and where it comes from; None where no model serves.

    A model serves if it was trained for the objective, from the present sources, on a GPU of this model,
    modelled or not, and at the kernel file's own batch. The one of this very GPU and driver comes first. What
    differs is told, as it makes the stated accuracy less sure.

    Args:
        query: with the device and the objective.
        kernel: the kernel.
        workload: at its sizes.
        models: of the kernel.
    """
    sizes = dict(workload.sizes)
    if workload.batch != kernel.workload(sizes).batch:
        return None
    wanted = query.objective.partition(" ")[0] or "time"
    fitting = [
        model
        for model in models
        if model.kernel == kernel.name
        and model.ranges.keys() == sizes.keys()
        and model.source == query.sources.get(kernel.name)
        and model.objective == wanted
        and model.device.name == query.device.name
        and model.device.modelled == query.device.modelled
    ]
    for model in sorted(fitting, key=lambda one: len(_differences(one, query))):
        selection = model.select(sizes, partial(is_allowed, kernel, workload))
        if selection is not None:
            configuration = kernel.configuration(workload, selection.configuration)
            doubts = [*_differences(model, query), *([selection.outside] if selection.outside else [])]
            told = f"{model.claim}, trained {model.date[:10]} on {len(model.inputs)} inputs"
            return configuration, "; ".join([told, *doubts])
    return None


def _differences(model: SelectionModel, query: AnswerQuery) -> list[str]:
    """How the GPU that a model was trained on differs from the one that is asked for."""
    found = []
    if model.device.uuid != query.device.uuid:
        found.append("on another GPU of this model, so that its accuracy is less sure")
    for name in ("driver", "runtime"):
        old, new = getattr(model.device, name), getattr(query.device, name)
        if old != new:
            found.append(f"with {name} {old}, now {new}")
    return found
