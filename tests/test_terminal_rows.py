"""The model of `tuner top`: what the daemon tells becomes rows, without a terminal."""

from datetime import timedelta
from typing import Any

import pytest
from terminal_scene import BEGUN, NAME, device, event, job, power, served_answer, state_of, told, trial

from tuner.cli.top.live_state import ANSWERS, MOST_JOBS, MOST_SEARCHES, MOST_TRIALS, LiveState
from tuner.cli.top.view import headline, warning
from tuner.cli.top.view_rows import (
    BIN_S,
    Arrangement,
    TrialRows,
    answer_listing,
    arranged,
    bins,
    device_listing,
    fitted,
    gap,
    job_listing,
    line,
    painted,
    sparkline,
    top,
)
from tuner.client.answer_values import PowerSample
from tuner.report.rows import Column

# --- what the daemon tells -----------------------------------------------------------------------


def test_a_new_daemon_is_told_anew() -> None:
    """A beginning that does not resume forgets all that was told; one that resumes forgets nothing."""
    state = state_of(*told())
    state.take(event("begin", resumed=True))
    assert (len(state.jobs), len(state.devices), len(state.searches[1].trials)) == (3, 2, 13)
    state.take(event("begin", resumed=False))
    assert not any((state.jobs, state.devices, state.searches, state.power))


def test_answers_are_wanted_when_a_job_ends() -> None:
    """An answer and the end of a job that was seen before make answers due; a job that had ended does not."""
    state = state_of(job(1, state="running"))
    assert ANSWERS not in state.take(job(2, state="finished"))
    assert ANSWERS not in state.take(job(1, state="paused"))
    assert ANSWERS in state.take(job(1, state="finished"))
    assert ANSWERS in state.take(event("answer", 1, summary={}))


def test_a_view_that_stays_open_keeps_within_bounds() -> None:
    """Old trials, searches that do not run and jobs that have ended are forgotten first."""
    state = state_of(job(1, state="running"), *(job(n, state="finished") for n in range(2, MOST_JOBS + 9)))
    for number in range(1, MOST_TRIALS + 3):
        state.search(1).take({"run": 1, "trial": number})
    for number in range(2, 9):
        state.take(trial(1, number))

    assert len(state.jobs) == MOST_JOBS
    assert min(state.searches[1].trials) == 3
    assert len(state.searches[1].trials) == MOST_TRIALS
    assert list(state.searches) == [1, *range(9 - MOST_SEARCHES + 1, 9)]


def test_a_contender_measured_again_replaces_its_trial() -> None:
    """A repeat is no trial more, and another run of the job begins anew."""
    state = state_of(trial(1), trial(2), trial(1, confirming=True, repeat=3, expected=None, joules=None))
    search = state.searches[1]
    assert (list(search.trials), search.trials[1]["repeat"]) == ([1, 2], 3)
    assert (search.expected, search.joules) == (20, 7.0)
    state.take(trial(5, run=9))
    assert list(search.trials) == [5]


def test_what_is_not_understood_is_told() -> None:
    """A newer daemon's kinds of events are passed over, and its jobs of another form are named."""
    state = state_of(event("weather", temperature=3), event("job", 1, id=1), event("trial", 1, trial=None))
    assert not state.jobs
    assert "Job without kind" in warning(state)


def test_shown_is_the_job_that_runs_unless_one_is_chosen() -> None:
    """Without a job that runs, it is the newest that has a run."""
    state = state_of(job(1, run=1, state="finished"), job(2, run=2, state="running"), job(3))
    assert [state.shown_job(chosen).id for chosen in (None, 1, 9)] == [2, 1, 2]  # type: ignore[union-attr]
    state.take(job(2, run=2, state="finished"))
    assert state.shown_job(None).id == 2  # type: ignore[union-attr]
    assert LiveState().shown_job(None) is None


# --- tables --------------------------------------------------------------------------------------

Thing = tuple[int, str, float | None, str]
COLUMNS: tuple[Column[Thing], ...] = (
    Column("n", lambda thing: thing[0], number=True),
    Column("name", lambda thing: thing[1], width=4),
    Column("spare", lambda thing: thing[3], key=lambda thing: thing[2], rank=1),
)
ROWS = [
    painted(COLUMNS, (1, "beta", None, "x" * 9), "a"),
    painted(COLUMNS, (20, "Alpha \x1b[31m[red]", 3.0, "y" * 9), "b", "in DETAIL"),
    painted(COLUMNS, (3, "gamma", 1.0, "z" * 9), "c"),
]


@pytest.mark.parametrize(
    ("arrangement", "keys"),
    [
        (Arrangement(), "abc"),
        (Arrangement(descending=True), "cba"),
        (Arrangement(0), "acb"),
        (Arrangement(0, descending=True), "bca"),
        (Arrangement(1), "bac"),
        (Arrangement(2), "cba"),
        (Arrangement(2, descending=True), "bca"),
        (Arrangement(text="ALPHA"), "b"),
        (Arrangement(text="detail"), "b"),
        (Arrangement(text="nothing"), ""),
    ],
)
def test_rows_are_sorted_and_filtered(arrangement: Arrangement, keys: str) -> None:
    """Numbers sort as such, what is not known stands last, and a filter looks at cells and details."""
    assert "".join(one.key for one in arranged(ROWS, arrangement)) == keys


def test_sorting_goes_through_the_columns_and_back() -> None:
    """After the last column comes the order of the rows; the title says what is chosen."""
    order = Arrangement(text="x")
    seen = []
    for _ in range(4):
        order = order.sorted_by_next(len(COLUMNS))
        seen.append(order.words(COLUMNS))
    assert seen == ["by n ↑, with “x”", "by name ↑, with “x”", "by spare ↑, with “x”", "with “x”"]
    assert order.turned().words(COLUMNS) == "in reverse, with “x”"


@pytest.mark.parametrize(("width", "heads"), [(40, 3), (23, 3), (16, 2), (8, 2)])
def test_tables_fit_their_width(width: int, heads: int) -> None:
    """The flexible column is cut first, down to its least; then columns of the highest rank are left out."""
    widths = fitted(COLUMNS, ROWS, width)
    lines = [(" " * gap(width)).join(line(one, COLUMNS, widths)) for one in ROWS]
    assert len(widths) == heads
    assert all(len(one) <= width for one in lines)
    assert lines[0].startswith(" 1 ")


def test_texts_from_outside_are_harmless() -> None:
    """Control characters never reach the terminal."""
    assert "\x1b" not in "".join(ROWS[1].cells)
    hostile = state_of(job(1, workloads=["\x1b]0;x\x07"], reason="\x1b[2J"), device(name="\u202eevil"))
    for listing in (job_listing(hostile), device_listing(hostile, 80)):
        for one in listing.rows:
            assert not {"\x1b", "\x07", "\u202e"} & set("".join((*one.cells, one.details)))


# --- power ---------------------------------------------------------------------------------------


def test_power_is_drawn_as_means_on_a_scale_from_zero() -> None:
    """A character is the mean of its seconds or a gap, and the scale ends at a round number."""
    samples: list[PowerSample] = [
        {"at": (BEGUN + timedelta(seconds=second)).isoformat(), "watts": watts}
        for second, watts in ((0, 100.0), (1, 200.0), (2 * BIN_S, 420.0), (2 * BIN_S + 1, None))
    ]
    found = bins(samples, 4)
    assert found == [None, 150.0, None, 420.0]
    assert top(found) == 500.0
    assert sparkline(found, 500.0) == " ▃ ▇"
    assert sparkline([0.0, 500.0], 500.0) == "▁█"
    assert (top([None]), top([0.0]), top([6.84])) == (None, 0.0, 8.0)
    assert bins([{"at": "never", "watts": 3.0}], 2) == [None, None]


def test_a_device_shows_power_clock_temperature_and_others() -> None:
    """Every number has its unit, and numbers of a simulated device are labelled."""
    listing = device_listing(state_of(*told()), 80)
    gpu, simulated = listing.rows

    assert gpu.cells[0] == "cuda:0"
    assert gpu.cells[1] == "415 W"
    assert gpu.cells[2].endswith("▇ 500 W")
    assert gpu.cells[3:] == ("1980 MHz", "61 °C", "97 %", "2", "waits")
    assert (
        "held back by power cap; 2 processes of others compute on it; today 41.7 J (as metered" in gpu.details
    )
    assert simulated.cells[0] == "sim:jetson-tx1 modelled"
    assert simulated.cells[3:] == ("998 MHz", "–", "–", "0", "job 1")
    assert "mean of the last trial, modelled; today 41.7 J (modelled) in 12 s of 60 min" in simulated.details


def test_where_times_alone_were_measured_no_joules_are_shown() -> None:
    (row,) = device_listing(state_of(device("cuda:0", spent_today_j=0.0, budget_j=900.0)), 80).rows
    assert "today 12 s of 60 min of measuring" in row.details


def test_power_that_cannot_be_read_says_why() -> None:
    """No number is shown for what was not measured."""
    unread = power("cuda:0", 0, None, others=None, failure="the driver does not answer")
    (shown,) = device_listing(state_of(device("cuda:0"), unread), 140).rows
    assert shown.cells[1:7] == ("–", "", "–", "–", "–", "–")
    assert "power: the driver does not answer" in shown.details
    assert shown.style == "bad"

    of_time = power("sim:h200", 0, None, reading="trial")
    (shown,) = device_listing(state_of(device("sim:h200"), of_time), 140).rows
    assert "the last trial measured time alone; today" in shown.details


# --- jobs, trials, answers -----------------------------------------------------------------------


def test_jobs_that_run_stand_first_with_their_reasons() -> None:
    """Then come those that wait, and why."""
    listing = job_listing(state_of(*told()))
    assert listing.title == "jobs: 1 running, 1 queued"
    assert [(one.cells[0], one.cells[1]) for one in listing.rows] == [
        ("1", "running"),
        ("2", "queued"),
        ("3", "failed"),
    ]
    assert listing.rows[0].cells[5] == "13"
    assert listing.rows[1].details.startswith("job 2 queued (the GPU is used by others); time, auto")


def test_a_trial_shows_time_and_joules_with_their_intervals() -> None:
    """The newest stands first, the best is marked, and what failed says how."""
    listing = TrialRows().listing(state_of(*told()), None)
    failed, best, *others = listing.rows

    assert listing.title == f"trials of job 1, running (modelled): {NAME}"
    assert listing.caption == "13 of 20 trials, 1 failed, best 188.00 ± 0.78 mJ (modelled), 45.5 J spent"
    assert failed.cells[0] == "13"
    assert failed.cells[5].startswith("timeout: no answer in 60 s; P=4")
    assert best.cells == (
        "★ 12",
        "28.038 ± 0.090 ms",
        "188.00 ± 0.78 mJ",
        "6.84 W",
        "998 MHz",
        "P=4 L=768 shuffle=1 store=direct",
    )
    assert best.details.endswith("6.84 W, clock as found, 998 MHz seen, modelled")
    assert not any(one.style for one in others)


def test_a_trial_of_several_workloads_at_a_set_clock() -> None:
    """Each configuration has its workload's name; a clock and a limit that were set are told."""
    both = trial(
        1,
        configurations={"a:N=1": {"P": 1}, "b:N=2": {"L": 2}},
        clock_set_mhz=998,
        power_limit_w=500,
        confirming=True,
        repeat=2,
        flags=["drift"],
    )
    (shown,) = TrialRows().listing(state_of(job(1, state="running"), both), None).rows
    assert shown.cells[0] == "★ 1 2×"
    assert shown.cells[5] == "a:N=1: P=1; b:N=2: L=2"
    assert "clock set to 998 MHz, power limit 500 W, a contender, repeat 2, modelled, drift" in shown.details


@pytest.mark.parametrize(
    ("fields", "best"),
    [
        ({"objective": "time"}, "best 1.000 ms"),
        ({"objective": "energy"}, "best 1.000 J"),
        ({"objective": "energy", "options": {"max_slowdown": 0.5}}, "best 2.000 J"),
        ({"objective": "edp"}, "best 3.000 mJ·s"),
        ({"objective": "beauty"}, "3 trials, "),
    ],
)
def test_the_best_is_that_of_the_objective_within_its_limit(fields: dict[str, Any], best: str) -> None:
    """While a search with a limit looks for the fastest, the costs that it tells are times."""
    measured = ((0.001, 3.0), (0.0015, 2.0), (0.004, 1.0))
    trials = [
        trial(n, time_s=s, energy_j=j, cost=s, expected=None, modelled=False, energy_j_uncertainty=None)
        for n, (s, j) in enumerate(measured, start=1)
    ]
    timed = [event("trial", 1, **{**one.data, "time_s_uncertainty": None}) for one in trials]
    listing = TrialRows().listing(state_of(job(1, state="running", **fields), *timed), None)
    assert best in listing.caption


def test_rows_of_trials_are_kept_until_they_change() -> None:
    """Of thousands of trials only new ones are written anew, and the one that was the best."""
    state, rows = state_of(*told()), TrialRows()
    before = {one.key: one for one in rows.listing(state, None).rows}
    state.take(trial(14))
    after = {one.key: one for one in rows.listing(state, None).rows}
    assert {key for key in after if after[key] is not before.get(key)} == {"1-12", "1-14"}


def test_a_search_without_trials_says_how_far_it_is() -> None:
    """It compiles first; a job that ended before has none."""
    state = state_of(job(1, state="running"), event("compiled", 1, done=3, total=40))
    assert TrialRows().listing(state, None).caption == "compiled 3 of 40"
    assert TrialRows().listing(state, None).title == "trials of job 1: none yet"
    state.take(job(2, state="cancelled"))
    assert TrialRows().listing(state, 2).title == "trials of job 2: none stored"
    assert TrialRows().listing(LiveState(), None).empty == "no job has run yet"


def test_an_answer_shows_its_gain_and_whether_it_holds() -> None:
    """Changes have their intervals, and a stale answer says why."""
    state = LiveState()
    old = {"run": 3, "at": "2026-11-20T21:00:00+00:00", "modelled": True, "device": "sim:h200"}
    state.answers = [served_answer(**old, stale=["the driver has changed"]), served_answer()]
    listing = answer_listing(state)
    fresh, stale = listing.rows

    assert listing.title == "answers: 2 served, 1 stale"
    assert fresh.cells[3:7] == ("1.2300 ± 0.0039 ms", "500.0 ± 2.0 mJ", "-31.0 ± 0.6 %", "fresh")
    assert fresh.details.startswith(
        "P=16 shuffle=0\nclock 1200 MHz; against the default: energy -31.0 ± 0.6 %"
    )
    assert "one use saves 200.0 ± 4.0 mJ; run 7" in fresh.details
    assert stale.cells[2] == "sim:h200 modelled"
    assert "stale: the driver has changed" in stale.details


def test_an_answer_without_joules_is_shown() -> None:
    """A search for time measures none, and nothing need be known of the default."""
    state = LiveState()
    state.answers = [
        served_answer(
            best={"time_s": 0.001, "energy_j": None}, against_default=None, saving=None, clock_mhz=None
        )
    ]
    (shown,) = answer_listing(state).rows
    assert shown.cells[3:7] == ("1.000 ms", "–", "–", "fresh")

    against = {"slowdown": -0.04, "slowdown_interval": 0.004}
    state.answers = [served_answer(objective="time", against_default=against, saving=None)]
    (shown,) = answer_listing(state).rows
    assert shown.cells[5] == "-4.0 ± 0.4 %"


def test_the_headline_names_the_daemon_and_its_work() -> None:
    """Troubles and an absence are told in a line of their own."""
    windows = {"summary": "closed until 2026-11-22 22:00:00 UTC"}
    state = state_of(event("status", version="1", queue={"queued": 2}, windows=windows, troubles=["a: b\nc"]))
    assert headline(state, "/s") == (
        "tuner top: daemon 1 at /s, 2 queued, tuning window closed until 2026-11-22 22:00:00 UTC"
    )
    assert warning(state) == "a: b; c"
    state.away = "no daemon listens at /s"
    assert warning(state) == "the daemon is away, and is looked for: no daemon listens at /s"
