"""Answers that are served, as JSON has them."""

from collections.abc import Sequence
from typing import Any

from tuner.daemon.interface import measured_saving
from tuner.database.answers import StoredAnswer
from tuner.model.device import DeviceIdentity
from tuner.model.run_document import AnswerDocument, RunDocument


def answer_document(
    answer: StoredAnswer, stale: Sequence[str], device: DeviceIdentity | None
) -> dict[str, Any]:
    """An answer that is served.

    Args:
        answer: as it is in memory.
        stale: why it need not be true any more; empty where it is fresh.
        device: for which it is served; None where its GPU is not here.
    """
    measured = answer.conditions["device"]
    return {
        "run": answer.run,
        "at": answer.at,
        "status": answer.status.value,
        "device": measured["spec"] if device is None else device.spec,
        "device_name": measured["name"],
        "modelled": measured["modelled"],
        "objective": answer.objective,
        "workloads": {
            name: {"batch": batch, "configuration": dict(answer.configurations[name])}
            for name, batch in answer.batches.items()
        },
        "clock_mhz": answer.clock_mhz,
        "power_limit_w": answer.power_limit_w,
        "stale": list(stale),
        "best": answer.answer["best"],
        "default": answer.answer["default"],
        "against_default": answer.answer["against_default"],
        "saving": saving_document(answer.answer),
        "sampled_at": answer.samples.at or None,
        "sample": answer.samples.verdict or None,
    }


def saving_document(answer: RunDocument | AnswerDocument | None) -> dict[str, float] | None:
    """What one use saves against the default, with half of its 95 % interval; None where it is not known."""
    saving = measured_saving(answer)
    return None if saving is None else {"energy_j": saving.joules, "energy_j_interval": saving.uncertainty_j}
