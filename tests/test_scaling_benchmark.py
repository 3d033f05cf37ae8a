"""The model behind docs/lab/scaling.md: what it does where arithmetic answers, and the page's figures."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import benchmark

ROOT = Path(__file__).parent.parent


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with short simulations."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = benchmark("scaling")
    monkeypatch.setattr(module, "_MOST_EVENTS", 20_000)
    return module


def costs(scaling: Any, **given: float) -> Any:
    free = dict.fromkeys(("writer_s", "event_s", "wake_s", "hear_s", "look_s"), 1e-12)
    return scaling.Costs(**{**free, **given})


def chance() -> random.Random:
    return random.Random(1)  # noqa: S311 - a model


def test_gpus_that_wait_for_nobody_measure_always(scaling: Any) -> None:
    """Without costs, GPUs lose the start of each attempt alone."""
    runs = [scaling.RecordedRun(100, 100.0)]
    found = scaling.simulated(10, costs(scaling), runs, chance(), daemon=True)

    assert found["efficiency"] == pytest.approx(100.0 / (100.0 + scaling.START_S), rel=1e-2)
    assert found["writer_wait_p99_s"] < 1e-9


def test_a_part_that_is_always_busy_bounds_the_rest(scaling: Any) -> None:
    """With twice the GPUs that the writer, or the daemon, can serve, they measure half of the time."""
    runs = [scaling.RecordedRun(100, 100.0)]
    written = costs(scaling, writer_s=0.1)
    placed = costs(scaling, hear_s=100.0 / (3 * 20 * 10))

    assert scaling.limits(written, runs)["writer_gpus"] == pytest.approx(10.0)
    writer = scaling.simulated(20, written, runs, chance(), daemon=False)
    daemon = scaling.simulated(20, placed, runs, chance(), daemon=True)
    assert writer["efficiency"] == pytest.approx(0.5, rel=0.05)
    assert daemon["efficiency"] == pytest.approx(0.5, rel=0.05)
    assert (writer["writer_busy"], daemon["loop_busy"]) == pytest.approx((1.0, 1.0), rel=0.05)


def test_one_queue_of_a_kind_waits_less(scaling: Any) -> None:
    """Jobs that any GPU may take wait less than those that name one; one GPU has the queue of theory."""
    runs = [scaling.RecordedRun(10, 10.0)]
    many = scaling.queue_times(10, runs, chance())
    assert many["shared_p99_s"] < many["own_p99_s"] / 4

    one = scaling.queue_times(1, runs, chance())
    assert one["own_p99_s"] == one["shared_p99_s"]


def test_the_page_has_the_figures_of_the_result(scaling: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Each row that the script prints of the stored result stands in docs/lab/scaling.md, as modelled."""
    document = json.loads((ROOT / "benchmarks" / "results" / "scaling.json").read_text())
    scaling.show(document)
    page = (ROOT / "docs" / "lab" / "scaling.md").read_text()

    assert document["label"] == "modelled"
    assert "**Every figure here is modelled**" in page
    missing = [line for line in capsys.readouterr().out.splitlines() if line not in page]
    assert missing == []
