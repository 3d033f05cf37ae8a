"""Algorithms 1 and 2: one kernel, paths worked out by hand."""

import math

import pytest
from policy_driver import blocks
from policy_tables import FAILED, K20C, K40C, Row, Table, replay

# --- Algorithm 1 ---------------------------------------------------------------------------------


def test_algorithm_1_stops_at_the_first_worsening() -> None:
    """T[2] > T[1] ends it: D[1] is the answer and D[3], better still, is never run."""
    table: Table = {(1024,): 10.0, (512,): 8.0, (256,): 9.0}

    path, best = replay(table, blocks(1024, 512, 256, 128))

    assert path == list(table)
    assert best == (512,)


def test_algorithm_1_without_a_worsening_ends_at_the_last() -> None:
    """StreamCluster on the K20c (Table IV): block 128 after 4 trials; an equal time is no worsening."""
    table: Table = {(1024,): 10.0, (512,): 8.0, (256,): 8.0, (128,): 7.0}

    assert replay(table, blocks(128, 256, 512, 1024)) == (list(table), (128,))


def test_a_single_candidate_is_run_once() -> None:
    """HotSpot on the K20c (Table IV): one candidate, one trial."""
    assert replay({(256,): 5.0}, blocks(256)) == ([(256,)], (256,))


def test_a_failed_trial_is_skipped_and_compared_with_nothing() -> None:
    """256 is compared with 1024, the valid one before it; 64 with 256: worse, so 32 is not run."""
    table: Table = {(1024,): 10.0, (512,): FAILED, (256,): 9.0, (128,): FAILED, (64,): 9.5}

    assert replay(table, blocks(1024, 512, 256, 128, 64, 32)) == (list(table), (256,))


def test_a_cost_that_is_no_number_is_a_failure() -> None:
    """256 is compared with 1024, not with the NaN between them: worse, so 128 is not run."""
    table: Table = {(1024,): 10.0, (512,): math.nan, (256,): 11.0}

    assert replay(table, blocks(1024, 512, 256, 128)) == (list(table), (1024,))


def test_a_first_candidate_that_fails_is_passed_over() -> None:
    """D[0] fails: D[1] is the start, and nothing is compared with D[0]."""
    table: Table = {(1024,): FAILED, (512,): 9.0, (256,): 9.5}

    assert replay(table, blocks(1024, 512, 256, 128)) == (list(table), (512,))


# --- Algorithm 2 ---------------------------------------------------------------------------------


def test_algorithm_2_keeps_the_clock_the_new_distribution_does_not_improve() -> None:
    """StreamCluster on the K20c (section IV-A): 128 at 705 MHz after 7 trials of 20."""
    table: Table = {
        (1024, 758): 10.0,  # steps 5-9: the clock is lowered
        (1024, 705): 9.0,
        (1024, 666): 9.5,  # worse: f = 705
        (512, 705): 8.0,  # steps 13-19 at 705; D ends at 128
        (256, 705): 7.0,
        (128, 705): 6.0,  # d = 3, not 0: goto step 4 with i_f at 666
        (128, 666): 6.5,  # worse: f = 705 again, where all is known
    }

    assert replay(table, blocks(1024, 512, 256, 128), clocks=K20C) == (list(table), (128, 705))


def test_algorithm_2_on_the_k40c() -> None:
    """StreamCluster on the K40c (section IV-A): 128 at 875 MHz after 6 trials of 16."""
    table: Table = {
        (1024, 875): 10.0,
        (1024, 810): 10.5,  # worse: f = 875
        (512, 875): 9.0,
        (256, 875): 8.0,
        (128, 875): 7.0,  # goto step 4 with i_f at 810
        (128, 810): 7.5,
    }

    assert replay(table, blocks(1024, 512, 256, 128), clocks=K40C) == (list(table), (128, 875))


@pytest.mark.parametrize(
    ("sizes", "clocks", "table", "best"),
    [
        ((512, 256, 128), K20C, {(512, 758): 5, (512, 705): 6, (256, 758): 6}, (512, 758)),
        ((1024, 256), K40C, {(1024, 875): 5, (1024, 810): 4, (1024, 745): 6, (256, 810): 7}, (1024, 810)),
        ((256,), K20C, {(256, 758): 5, (256, 705): 6}, (256, 758)),
    ],
    ids=["particle-filter", "lud", "hotspot"],
)
def test_algorithm_2_ends_where_the_distribution_stays(
    sizes: Row, clocks: Row, table: Table, best: Row
) -> None:
    """Three more rows of Table IV, in as many trials: 3, 4 and 2. D[0] stays, so nothing restarts."""
    assert replay(table, blocks(*sizes), clocks=clocks) == (list(table), best)


def test_algorithm_2_restarts_over_the_remaining_clocks() -> None:
    """Step 16: a new distribution goes on from the clock reached; its neighbours follow at the new clock."""
    table: Table = {
        (1024, 875): 100.0,
        (1024, 810): 90.0,
        (1024, 745): 95.0,  # f = 810, i_f = 2
        (512, 810): 80.0,
        (256, 810): 85.0,  # worse: d = 1, goto step 4
        (512, 745): 70.0,  # compared with E[1, 810] = 80
        (512, 666): 72.0,  # worse: f = 745
        # step 13 from id = 1, the distribution reached, at 745: 512 is known (70)
        (256, 745): 75.0,  # worse, and so is id = 0, which is known (95): d = 1 as before: step 17
    }

    assert replay(table, blocks(1024, 512, 256, 128), clocks=K40C) == (list(table), (512, 745))


def test_algorithm_2_at_the_lowest_clock_has_nothing_to_restart_over() -> None:
    """Energy falls with every clock: f = fmin (step 10); the new distribution has no clock left to try."""
    table: Table = {
        (1024, 875): 100.0,
        (1024, 810): 90.0,
        (1024, 745): 80.0,
        (1024, 666): 70.0,
        (512, 666): 60.0,
        (256, 666): 65.0,
    }

    assert replay(table, blocks(1024, 512, 256), clocks=K40C) == (list(table), (512, 666))


def test_failed_clocks_are_skipped() -> None:
    """745 fails: 666 is compared with 810. At 666, 512 fails and 256 is compared with 1024."""
    table: Table = {
        (1024, 875): FAILED,
        (1024, 810): 90.0,
        (1024, 745): FAILED,
        (1024, 666): 85.0,
        (512, 666): FAILED,
        (256, 666): 86.0,
    }

    assert replay(table, blocks(1024, 512, 256), clocks=K40C) == (list(table), (1024, 666))


def test_a_candidate_that_fails_at_every_clock_gives_way_to_the_next() -> None:
    """D[0] fails at both clocks: the frequencies are tried with D[1]."""
    table: Table = {
        (1024, 875): FAILED,
        (1024, 810): FAILED,
        (512, 875): 9.0,
        (512, 810): 9.5,  # f = 875, where D[0] is known to fail
        (256, 875): 9.2,
    }

    assert replay(table, blocks(1024, 512, 256), clocks=K40C[:2]) == (list(table), (512, 875))


@pytest.mark.parametrize(
    ("optimum", "path"),
    [
        (1130, [1600, 1400, 1200, 1000, 1100]),  # lower than the 1200 of the strides
        (1270, [1600, 1400, 1200, 1000, 1100, 1300]),  # higher
        (1600, [1600, 1400, 1500]),
    ],
)
def test_many_clocks_are_descended_in_strides(optimum: int, path: list[int]) -> None:
    """Of 16 clocks every second is tried until the first worsening, then those beside the one found."""
    clocks = range(1600, 0, -100)
    table: Table = {(256, mhz): 1.0 + abs(mhz - optimum) for mhz in path}

    tried, best = replay(table, blocks(256), clocks=clocks)

    assert tried == [(256, mhz) for mhz in path]
    assert best == min(table, key=table.__getitem__)
