"""What a run was made with: GPU, driver, options, sources, and who wrote the page."""

from collections.abc import Iterator

from tuner.model.run_document import RunDocument
from tuner.report.ranked_trials import goal
from tuner.report.words import moment, origin_words

_DEVICE = {"name": "GPU", "spec": "device", "uuid": "UUID", "driver": "driver", "runtime": "CUDA"}


def conditions_of(document: RunDocument) -> Iterator[tuple[str, str]]:
    """Names and values of all that the answer is bound to."""
    yield from _of_run(document)
    device = dict(document["device"])
    for key, words in _DEVICE.items():
        if device.get(key):
            yield words, str(device[key])
    if document.get("recorded"):
        yield "recorded on", str(document["recorded"])
    yield "objective", goal(document)
    bound = {key: document.get(key) for key in ("policy", "seed", "clocks", "energy_precision")}
    for key, value in bound.items():
        if value is not None:
            yield key.replace("_", " "), str(value)
    for workload in document["workloads"]:
        if workload.get("batch") is not None:
            yield f"batch of {workload['name']}", f"{workload['batch']:,}"
    for key, value in (document.get("settings") or {}).items():
        if value is not None and key != "energy_precision":
            yield f"option {key}", str(value)


def _of_run(document: RunDocument) -> Iterator[tuple[str, str]]:
    if document.get("run") is not None:
        yield "run", str(document["run"])
    merged_from = document.get("merged_from")
    if merged_from:
        yield "merged", f"{origin_words(merged_from)}, {moment(merged_from['at'])}"
    for words, at in (("started", document.get("started_at")), ("ended", document.get("ended_at"))):
        if at:
            yield words, moment(at)
    yield "status", str(document["status"])


def source_facts(document: RunDocument) -> Iterator[tuple[str, str]]:
    """Kernels with the hash of their files and options."""
    for kernel, digest in (document.get("sources") or {}).items():
        yield kernel, str(digest)
