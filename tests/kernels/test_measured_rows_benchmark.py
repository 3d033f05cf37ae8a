"""Which rows benchmarks/kernels/measured_rows.py writes for what GPUs timed."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import benchmark, siblings_importable

from tuner.kernel_files.catalog import Catalog
from tuner.model.plan import Configuration

KERNEL = Catalog.load().kernel("fft-any")
WORKLOAD = KERNEL.workload({"N": 1000, "dtype": "complex64"})
DEFAULT = KERNEL.default(WORKLOAD)
FIRST, SECOND, THIRD = [one for one in KERNEL.space(WORKLOAD) if one != DEFAULT and not one["split"]][:3]
HEADER = "N,dtype,gpu,r,P,L,split,tile,blocks"


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., list[str]]]:
    """Chooses from what GPUs timed, and returns the rows that are written without those of other lengths."""
    with siblings_importable(monkeypatch):
        script: Any = benchmark("kernels/measured_rows")

        def chosen(times: Mapping[str, Mapping[Configuration, float]], before: str = "") -> list[str]:
            paths: list[Path] = []
            answers = tmp_path / "answers.csv"
            if before:
                answers.write_text(f"{HEADER}\n{before}\n")
            for name, found in times.items():
                row = {"kernel": "fft-any", "N": 1000, "dtype": "complex64", "direction": "forward"}
                rows = [row | {"ms": {str(one): ms for one, ms in found.items()}}]
                if not found:
                    rows = [row | {"N": 998, "ms": {}}]
                facts = {"gpus": [{"name": name}]}
                paths.append(tmp_path / f"{len(paths)}.json")
                paths[-1].write_text(json.dumps({"provenance": facts, "rows": rows}))
            kind = script.KERNELS["fft-any"]
            script.choose(kind, script.records_by_gpu(kind, paths), answers)
            header, *lines = answers.read_text().splitlines()
            assert header == HEADER
            return lines

        yield chosen


def row(configuration: Configuration, gpu: str = "") -> str:
    values = dict(configuration)
    words = [str(values.get(name, "")).lower() for name in ("r", "P", "L", "split", "tile", "blocks")]
    return ",".join(["1000", "complex64", gpu, *words])


def test_a_row_for_any_gpu_and_one_for_whose_best_is_another(choose: Callable[..., list[str]]) -> None:
    """Shared is what loses least where it loses most; a GPU has a row where its best is 2 % faster."""
    found = choose(
        {
            "NVIDIA H200": {DEFAULT: 1.0, FIRST: 0.9, SECOND: 0.5, THIRD: 0.505},
            "NVIDIA H100 80GB HBM3": {DEFAULT: 1.0, FIRST: 0.7, SECOND: 0.75, THIRD: 0.95},
        }
    )
    assert found == [row(FIRST, "H100"), row(SECOND)]


def test_what_is_no_faster_than_the_default_has_no_row(choose: Callable[..., list[str]]) -> None:
    """A row must be worth 2 % on every GPU; one for a GPU is worth it there."""
    found = choose(
        {
            "NVIDIA A100-SXM4-80GB": {DEFAULT: 1.0, FIRST: 0.99, SECOND: 0.985},
            "NVIDIA H200": {DEFAULT: 1.0, FIRST: 0.9},
        }
    )
    assert found == [row(FIRST, "H200")]
    assert choose({"NVIDIA A100-SXM4-80GB": {DEFAULT: 1.0, FIRST: 0.9}}, row(SECOND)) == [row(FIRST)]


def test_rows_of_gpus_that_timed_nothing_stay(choose: Callable[..., list[str]]) -> None:
    """Those of other GPUs and of other lengths; those of the GPUs that timed are chosen anew."""
    other_length = row(SECOND).replace("1000", "999", 1)
    before = f"{other_length}\n{row(THIRD, 'L4')}\n{row(THIRD, 'H200')}"
    found = choose({"NVIDIA H200": {DEFAULT: 1.0, FIRST: 0.9}}, before)
    assert found == [other_length, row(THIRD, "L4"), row(FIRST)]


def test_what_one_gpu_timed_holds_for_others_where_it_is_much_faster(
    choose: Callable[..., list[str]],
) -> None:
    """By 10 %; below, the row is for the GPU that timed it."""
    elsewhere: dict[Configuration, float] = {}  # that record has another length
    few = {"NVIDIA H200": {DEFAULT: 1.0, FIRST: 0.92}, "NVIDIA H100 80GB HBM3": elsewhere}
    much = {"NVIDIA H200": {DEFAULT: 1.0, FIRST: 0.9}, "NVIDIA H100 80GB HBM3": elsewhere}
    assert choose(few) == [row(FIRST, "H200")]
    assert choose(few, row(SECOND)) == [row(SECOND)]
    assert choose(much, row(THIRD).replace("1000", "999", 1))[1:] == [row(FIRST)]


def test_where_the_default_was_not_timed_there_is_no_row(choose: Callable[..., list[str]]) -> None:
    """Nothing says that a row would be worth it; what another GPU timed still counts."""
    found = choose({"NVIDIA H200": {FIRST: 0.9, SECOND: 1.0}, "NVIDIA H100 80GB HBM3": {FIRST: 1.2}})
    assert found == []
    found = choose({"NVIDIA H200": {FIRST: 0.9, SECOND: 1.0}, "NVIDIA A2": {DEFAULT: 1.0, FIRST: 0.8}})
    assert found == [row(FIRST, "A2")]


def test_another_gpu_times_the_default_and_what_was_near(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the default was left out there; the shortlist where it was fast enough."""
    with siblings_importable(monkeypatch):
        script: Any = benchmark("kernels/measured_rows")
        kind = script.KERNELS["fft-any"]
        assert script.near_there(kind, KERNEL, WORKLOAD, {str(FIRST): 1.0}) == [DEFAULT, FIRST]
        near = {str(SECOND): 1.0, str(DEFAULT): 1.1}
        assert script.near_there(kind, KERNEL, WORKLOAD, near) == [DEFAULT, SECOND]
        alone = script.near_there(kind, KERNEL, WORKLOAD, {str(DEFAULT): 1.0})
        assert len(alone) > 10
        assert alone == kind.shortlist(KERNEL, WORKLOAD)
