"""The end of a run: contenders measured again, ties stated, idle power read; or a GPU that is lost."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tuning import REQUEST, tune

from tuner.database import Store
from tuner.devices.simulated import SimulatedDevice
from tuner.driver import LEAST_BURSTS, MOST_BURSTS, undecided
from tuner.errors import ClockError, DeviceError, PowerError
from tuner.interfaces import RunRecord
from tuner.model import Configuration, Energy, Measurement, Plan, Status, Trial, WorkloadResult
from tuner.objective import Objective


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "tuner.db") as opened:
        yield opened


def test_contenders_take_turns(store: Store) -> None:
    """Fresh bursts go round the contenders, so that a drift meets all; later rounds have fewer of them."""
    order: list[Trial] = []
    tune(
        replace(REQUEST, policy="exhaustive", energy_precision=0.0002, window_s=1.0),
        store,
        spec="sim:a100",
        observer=lambda event: order.append(event.trial) if event.confirming else None,
    )
    count = len(set(order))
    rounds = [order[i * count : (i + 1) * count] for i in range(3)]

    assert rounds[0] == rounds[1] == rounds[2]
    assert max(order.count(trial) for trial in order) > LEAST_BURSTS
    assert max(order.count(trial) for trial in order) <= MOST_BURSTS
    later = order[3 * count :]
    assert later == [trial for i in range(6) for trial in rounds[0] if order.count(trial) > 3 + i]


def confirmed(*costs: tuple[float, float]) -> dict[Trial, Measurement]:
    """Trials with so many joules and uncertainty."""
    made = {}
    for number, (joules, uncertainty_j) in enumerate(costs):
        energy = Energy(joules, uncertainty_j, joules, "s", "gpu")
        made[Trial((Configuration({"i": number}),))] = Measurement(
            (WorkloadResult(Status.OK, 1.0),), 1.0, energy=energy
        )
    return made


@pytest.mark.parametrize(
    ("costs", "open_"),
    [
        ([(100.0, 2.0), (150.0, 2.0)], []),
        ([(100.0, 2.0), (103.0, 2.0)], [0, 1]),
        ([(100.0, 2.0), (103.0, 0.1), (150.0, 9.0)], [0]),
        ([(100.0, 0.1), (100.1, 0.1)], []),
        ([(100.0, 2.0)], []),
    ],
)
def test_more_bursts_are_for_what_they_may_decide(costs: list[tuple[float, float]], open_: list[int]) -> None:
    """Contenders that are known to 1 %, or surely not the lowest, are not measured any further."""
    joined = confirmed(*costs)

    found = undecided(joined, Objective("energy"), 0.01)

    assert [list(joined).index(trial) for trial in found] == open_


def test_a_tie_is_stated(store: Store) -> None:
    """Where several contenders may cost least the run says how many, and takes the fastest."""
    outcome = tune(replace(REQUEST, policy="exhaustive"), store, spec="sim:a100")

    assert outcome.answer is not None
    tied = [notice for notice in outcome.notices if notice.startswith("tie: ")]
    energies = [m.energy for _, m in outcome.trials if m.bursts > 1 and m.energy is not None]
    lowest = min(energies, key=lambda energy: energy.joules)
    overlapping = [
        e for e in energies if e.joules - lowest.joules <= 1.96 * (e.uncertainty_j + lowest.uncertainty_j)
    ]
    assert len(overlapping) > 1
    says = f"tie: {len(overlapping)} trials may cost least, by their 95 % intervals;"
    assert tied == [f"{says} the answer is the fastest of them"]


def test_answer_and_default_are_net_of_idle(store: Store) -> None:
    """Idle power is read before the first trial and after the last, also at the contenders' other clocks."""
    outcome = tune(replace(REQUEST, policy="greedy", clocks="all"), store)

    assert outcome.answer is not None
    for index in (outcome.answer, outcome.default, outcome.fastest):
        assert index is not None
        energy = outcome.trials[index][1].energy
        assert energy is not None
        assert energy.net_joules is not None
        assert 0.0 < energy.net_joules < energy.joules
        assert energy.net_uncertainty_j is not None
        assert energy.net_uncertainty_j > energy.uncertainty_j


@pytest.mark.parametrize(
    "lost", [DeviceError("GPU is lost"), PowerError("GPU is lost"), ClockError("GPU is lost")]
)
def test_a_gpu_that_is_lost_in_a_sweep(
    lost: Exception, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error reaches the user; what was measured is stored and can be resumed; the clock is given back."""
    clocks: list[int] = []
    run = SimulatedDevice.run
    give = SimulatedDevice.set_clock_mhz

    def run_or_lose(self: SimulatedDevice, plans: Sequence[Plan], window_s: float) -> RunRecord:
        if len(clocks) >= 3:
            raise lost
        return run(self, plans, window_s)

    def set_clock(self: SimulatedDevice, mhz: int | None) -> None:
        clocks.append(mhz or 0)
        give(self, mhz)

    monkeypatch.setattr(SimulatedDevice, "run", run_or_lose)
    monkeypatch.setattr(SimulatedDevice, "set_clock_mhz", set_clock)
    with pytest.raises(type(lost), match="GPU is lost"):
        tune(replace(REQUEST, policy="exhaustive", clocks="810,745"), store)

    assert clocks[-1] == 0, "given back"
    assert store.history(1)[0].status == "failed"
    assert store.history(1)[0].trials > 0
    monkeypatch.undo()
    assert tune(replace(REQUEST, policy="exhaustive", clocks="810,745"), store, resume=True).resumed > 0
