"""Answers compared with a right one on the device: what is wrong is found, whichever of the two it is in."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_cuda import ROWS, N, fake_device, plan
from fake_cupy import DeviceArray, FakeCupy

from tuner.devices.cuda.device import CudaDevice
from tuner.model.plan import Buffer, Plan, Scalar
from tuner.model.trial import Status
from tuner.problems.base import sample_rows
from tuner.problems.scans import Scan

SEED = 1
UNSAMPLED = next(row for row in range(ROWS) if row not in sample_rows(ROWS, SEED))
ALLOWED = 2**-24 * (4 + 2 * N**0.5)

Mutation = Callable[[Any], None]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeCupy, CudaDevice]:
    return fake_device(monkeypatch)


@pytest.fixture
def cp(fake: tuple[FakeCupy, CudaDevice]) -> FakeCupy:
    return fake[0]


@pytest.fixture
def device(fake: tuple[FakeCupy, CudaDevice]) -> CudaDevice:
    return fake[1]


def mutate(cp: FakeCupy, mutation: Mutation, entry: str = "reading") -> None:
    """Let an entry sum rows, and then change the sums."""

    def action(x: DeviceArray, y: DeviceArray, _: int) -> None:
        sums = np.cumsum(np.asarray(x).astype(np.float64), axis=1)
        mutation(sums)
        y[...] = sums

    cp.kernels[entry].action = action


def last_element(y: Any) -> None:
    y[-1, -1] += 1e-4


def first_element(y: Any) -> None:
    y[0, 0] += 1e-4


def one_row(y: Any) -> None:
    y[UNSAMPLED] *= 1 + 1e-4


def creeping_row(y: Any) -> None:
    y[UNSAMPLED] += np.linspace(0, 4 * ALLOWED, N) * abs(y[UNSAMPLED]).max()


def rows_that_changed_places(y: Any) -> None:
    y[[UNSAMPLED, UNSAMPLED - 1]] = y[[UNSAMPLED - 1, UNSAMPLED]]


def one_nan(y: Any) -> None:
    y[UNSAMPLED, 3] = np.nan


def one_infinity(y: Any) -> None:
    y[UNSAMPLED, N - 1] = np.inf


def zeros(y: Any) -> None:
    y[UNSAMPLED] = 0


def single_precision(y: Any) -> None:
    y[...] = y.astype(np.float16)


MUTATIONS = (
    *(last_element, first_element, one_row, creeping_row, rows_that_changed_places),
    *(one_nan, one_infinity, zeros, single_precision),
)


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("role", ["out", "inout"])
def test_mutations_are_found(cp: FakeCupy, device: CudaDevice, mutation: Mutation, role: str) -> None:
    """What a wrong kernel does to a single element, row or all rows is found beside a right answer."""
    assert device.check(plan("scan", role=role), SEED).status is Status.OK
    mutate(cp, lambda _: None)
    right = device.check(plan("reading", role=role), SEED)
    assert right.status is Status.OK
    assert "difference of" in right.detail
    mutate(cp, mutation)
    check = device.check(plan("reading", role=role), SEED)
    assert check.status is Status.WRONG_ANSWER, check.detail
    assert "allowed" in check.detail
    mutate(cp, lambda _: None)
    assert device.check(plan("reading", role=role), SEED).status is Status.OK


@pytest.mark.parametrize("problem", ["expression", "consistent"])
@pytest.mark.parametrize("mutation", [last_element, first_element, one_row, one_nan, zeros])
def test_mutations_of_users_kernels_are_found(
    cp: FakeCupy, device: CudaDevice, mutation: Mutation, problem: str
) -> None:
    """So is it where an expression says what is right, or the default configuration."""

    def doubled(change: Mutation) -> Callable[..., None]:
        def action(x: DeviceArray, y: DeviceArray, _: int) -> None:
            twice = 2 * np.asarray(x).astype(np.float64)
            change(twice)
            y[...] = twice

        return action

    reference = (("y", "2 * x"),) if problem == "expression" else ()
    default = plan("double", problem=problem, reference=reference)
    baseline = default if problem == "consistent" else None
    other = plan("reading", problem=problem, reference=reference, baseline=baseline)
    for first in (default, other):  # whichever is asked for first
        cp.kernels["reading"].action = doubled(lambda _: None)
        assert device.check(first, SEED).status is Status.OK
        assert device.check(other, SEED).status is Status.OK
        cp.kernels["reading"].action = doubled(mutation)
        assert device.check(other, SEED).status is Status.WRONG_ANSWER


def test_default_runs_once_for_all_that_it_judges(cp: FakeCupy, device: CudaDevice) -> None:
    """The default configuration's answer is kept: it runs once, however many it judges."""
    default = plan("double", problem="consistent")
    cp.kernels["reading"].action = cp.kernels["double"].action
    for scratch in range(4):
        other = plan("reading", problem="consistent", baseline=default, scratch=scratch)
        cp.kernels["reading"].action = lambda x, y, *_: np.multiply(x, 2, out=y)
        assert device.check(other, SEED).status is Status.OK
    assert cp.kernels["double"].runs == 1


def test_inputs_and_sums_are_made_once(
    cp: FakeCupy, device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Configurations share inputs and the right answer: only the first is judged on the host."""
    made: list[float] = []
    compared: list[int] = []
    compare = Scan.compare

    def counted(self: Scan, *args: Any) -> Any:
        compared.append(1)
        return compare(self, *args)

    monkeypatch.setattr(Scan, "compare", counted)

    def noted(x: DeviceArray, y: DeviceArray, _: int) -> None:
        made.append(float(x.sum()))
        np.cumsum(x, axis=1, out=y)

    cp.kernels["reading"].action = noted
    fills = cp.kernels["fill<>"].runs
    for scratch in range(4):
        assert device.check(plan("reading", scratch=scratch), SEED).status is Status.OK
    assert len(set(made)) == 1
    assert cp.kernels["fill<>"].runs == fills + 1
    assert len(compared) == 1
    assert device.check(plan("reading"), SEED + 1).status is Status.OK
    assert len(set(made)) == 2


def test_a_wrong_reference_is_found_out(cp: FakeCupy, device: CudaDevice) -> None:
    """Where the first answer was wrong in a way its law allows, a right one is not called wrong for it."""

    def barely(y: Any) -> None:
        y[UNSAMPLED] *= 1 + 1.8 * ALLOWED

    mutate(cp, barely)
    assert device.check(plan("reading"), SEED).status is Status.OK
    check = device.check(plan("scan"), SEED)
    assert check.status is Status.OK
    assert "residual" in check.detail  # judged thoroughly, as the first one was
    check = device.check(plan("reading"), SEED)
    assert check.status is Status.WRONG_ANSWER
    assert f"(problem {UNSAMPLED})" in check.detail


def test_answers_that_differ_and_are_both_right(cp: FakeCupy, device: CudaDevice) -> None:
    """Two answers on either side of the truth, each within what is allowed, are both right."""

    def scaled(sign: int) -> Mutation:
        def action(y: Any) -> None:
            y *= 1 + sign * 0.7 * ALLOWED

        return action

    mutate(cp, scaled(1))
    assert device.check(plan("reading"), SEED).status is Status.OK
    mutate(cp, scaled(-1))
    check = device.check(plan("reading"), SEED)
    assert check.status is Status.OK
    assert "difference of" in check.detail


def test_the_output_that_differs_is_judged(
    cp: FakeCupy, device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs are compared in chunks of as many problems as fit, more of short ones: all of a chunk count."""
    monkeypatch.setattr("tuner.devices.cuda.answer_check.CHUNK_ELEMENTS", N)  # one row of y, all of z

    def two_outputs(entry: str) -> Plan:
        made = plan(entry, problem="expression", reference=(("y", "2 * x"), ("z", "3")))
        (stage,) = made.stages
        stage = replace(stage, arguments=("x", "y", "z", Scalar("int32", ROWS)))
        return replace(
            made, stages=(stage,), buffers=(*made.buffers, Buffer("z", "float32", (ROWS, 1), "out"))
        )

    def action(wrong: float) -> Callable[..., None]:
        def write(x: DeviceArray, y: DeviceArray, z: DeviceArray, _: int) -> None:
            np.multiply(x, 2, out=y)
            z[...] = 3
            z[UNSAMPLED] += wrong

        return write

    cp.kernels["double"].action, cp.kernels["reading"].action = action(0.0), action(1.0)
    assert device.check(two_outputs("double"), SEED).status is Status.OK
    check = device.check(two_outputs("reading"), SEED)
    assert check.status is Status.WRONG_ANSWER, check.detail
    assert f"(problem {UNSAMPLED})" in check.detail


def test_without_room_every_answer_is_judged_thoroughly(cp: FakeCupy, device: CudaDevice) -> None:
    """A reference takes an eighth of the free memory at most; without one wrong answers are found as well."""
    held = cp.allocated_bytes
    assert device.check(plan("scan"), SEED).status is Status.OK
    with_reference = cp.allocated_bytes - held
    device.close()
    cp.memory_bytes = cp.allocated_bytes + 4 * ROWS * N * 4
    for entry, status in (("scan", Status.OK), ("slow", Status.OK), ("off", Status.WRONG_ANSWER)):
        check = device.check(plan(entry), SEED)
        assert check.status is status
        assert "difference of" not in check.detail
    assert with_reference - (cp.allocated_bytes - held) >= ROWS * N * 4


def test_a_default_that_is_not_finite_judges_nothing_right(cp: FakeCupy, device: CudaDevice) -> None:
    """Where the default configuration leaves NaN, no other configuration is right beside it."""

    def holed(x: DeviceArray, y: DeviceArray, _: int) -> None:
        np.multiply(x, 2, out=y)
        y[UNSAMPLED, 5] = np.nan

    cp.kernels["reading"].action = holed
    default = plan("reading", problem="consistent")
    assert device.check(default, SEED).status is Status.WRONG_ANSWER
    for entry in ("double", "slow"):
        other = plan(entry, problem="consistent", baseline=default)
        assert device.check(other, SEED).status is Status.WRONG_ANSWER


def test_stale_answers_do_not_pass(device: CudaDevice) -> None:
    """A kernel that writes nothing is not helped by the right answer that lay in its output."""
    assert device.check(plan("scan"), SEED).status is Status.OK
    for entry in ("nothing", "half"):
        assert device.check(plan(entry), SEED).status is Status.WRONG_ANSWER


def test_workloads_have_inputs_of_their_own(device: CudaDevice) -> None:
    """Each workload has its own inputs and right answer."""
    parts: list[Plan] = [
        plan("scan", kernel=name, rows=rows) for name, rows in (("a", 8), ("b", 16), ("a", 8))
    ]
    for part in parts:
        assert device.check(part, SEED).status is Status.OK
