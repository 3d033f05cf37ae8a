"""What a run was made with: GPU, driver, options, sources, and who wrote the page."""

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.report.ranked_trials import goal
from tuner.report.words import moment, origin_words

_DEVICE = {"name": "GPU", "spec": "device", "uuid": "UUID", "driver": "driver", "runtime": "CUDA"}


def conditions_of(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and values of all that the answer is bound to."""
    yield from _of_run(document)
    for key, words in _DEVICE.items():
        if document["device"].get(key):
            yield words, str(document["device"][key])
    if document.get("recorded"):
        yield "recorded on", str(document["recorded"])
    yield "objective", goal(document)
    for key in ("policy", "seed", "clocks", "energy_precision"):
        if document.get(key) is not None:
            yield key.replace("_", " "), str(document[key])
    for workload in document["workloads"]:
        if workload.get("batch") is not None:
            yield f"batch of {workload['name']}", f"{workload['batch']:,}"
    for key, value in (document.get("settings") or {}).items():
        if value is not None and key != "energy_precision":
            yield f"option {key}", str(value)


def _of_run(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if document.get("run") is not None:
        yield "run", str(document["run"])
    if document.get("merged_from"):
        yield "merged", f"{origin_words(document['merged_from'])}, {moment(document['merged_from']['at'])}"
    for key, words in (("started_at", "started"), ("ended_at", "ended")):
        if document.get(key):
            yield words, moment(document[key])
    yield "status", str(document["status"])


def source_facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Kernels with the hash of their files and options."""
    for kernel, digest in (document.get("sources") or {}).items():
        yield kernel, str(digest)
