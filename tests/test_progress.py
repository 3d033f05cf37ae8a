"""The progress of a run: what is compiled, beside the trials."""

import io
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from policy_driver import result
from rich.console import Console

from tuner.model.plan import Configuration
from tuner.model.trial import Trial
from tuner.report import progress as shown
from tuner.report.progress import CompareProgress, RunProgress
from tuner.search.session import TrialEvent


def event(number: int, expected: int | None = None) -> TrialEvent:
    trial = Trial((Configuration({"P": number}),))
    return TrialEvent(trial, result(0.5, [0.5]), 0.5, 0.5, number, expected, 3.0)


@pytest.fixture(autouse=True)
def _tells_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "_PLAIN_INTERVAL_S", -math.inf)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_before_the_first_trial_what_is_asked_for_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """So many of those that a search begins with."""
    with RunProgress("energy") as progress:
        progress.compiled(1, 3)
        progress.compiled(3, 3)

    assert lines(capsys) == ["compiling 1/3", "compiling 3/3"]


def test_trials_say_what_is_compiled_by_then(capsys: pytest.CaptureFixture[str]) -> None:
    """Compiling goes on during a search, and never takes the place of its trials."""
    with RunProgress("energy") as progress:
        progress.compiled(3, 3)
        progress.measured(event(1))
        progress.compiled(4, 5)
        progress.compiled(5, 5)
        progress.measured(event(2))

    first, second, third = lines(capsys)
    assert first == "compiling 3/3"
    assert second.startswith("measuring 1: trial 500.0 mJ")
    assert "3 compiled" in second
    assert third.startswith("measuring 2: trial 500.0 mJ")
    assert "5 compiled" in third


def test_trials_on_several_gpus_say_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Each part of a line stands in it once."""
    with RunProgress("energy") as progress:
        progress.measured(replace(event(1, 4), gpus=3))

    (line,) = lines(capsys)
    assert line.count("on 3 GPUs") == line.count("s left") == 1


def test_numbers_that_no_gpu_made_are_labelled(capsys: pytest.CaptureFixture[str]) -> None:
    """Of any objective, beside the best so far."""
    with RunProgress("pareto") as progress:
        progress.measured(replace(event(1), label="modelled"))
        progress.measured(event(2))

    modelled, measured = lines(capsys)
    assert "best 500.0 mJ·s (modelled)" in modelled
    assert "modelled" not in measured


def test_a_search_that_compiles_nothing_says_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Recordings have no code."""
    with RunProgress("energy") as progress:
        progress.measured(event(1))

    assert "compiled" not in " ".join(lines(capsys))


def test_every_space_of_a_comparison_begins_with_compiling(capsys: pytest.CaptureFixture[str]) -> None:
    """What was compiled for the space before is not counted again."""
    with CompareProgress("time") as progress:
        progress.space("one", 1, 2)
        progress.compiled(7, 7)
        progress.measured(event(1))
        progress.space("two", 2, 2)
        progress.compiled(1, 2)
        progress.measured(event(1))

    assert [line.partition(": ")[0] for line in lines(capsys)] == [
        "one (space 1/2)",
        "one (space 1/2)",
        "two (space 2/2)",
        "two (space 2/2)",
    ]


def test_time_left_while_a_space_is_measured_is_that_of_the_space(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody knows how long the next spaces take, and no number may look like the end of the comparison."""
    with CompareProgress("time") as progress:
        progress.space("one", 1, 2)
        progress.measured(event(4, 4))

    (line,) = lines(capsys)
    assert line.endswith("0 s left for this space")


def test_time_left_of_a_comparison_is_that_of_all_its_searches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search takes as long as its space has trials; the pace is told once every policy was seen."""
    now_s = [0.0]
    monkeypatch.setattr(shown, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    with CompareProgress("time") as progress:
        progress.space("one", 1, 2)
        progress.searches([10, 30], 2)
        for at_s, space in ((100.0, 0), (110.0, 0), (140.0, 1), (170.0, 1)):
            now_s[0] = at_s
            progress.searched(space, "one of them")

    assert lines(capsys) == [
        "searching 1/4: space 1/2, one of them",
        "searching 2/4: space 1/2, one of them",
        "searching 3/4: space 2/2, about 30 s left for all, one of them",
        "searching 4/4: space 2/2, one of them",
    ]


def test_repeats_of_contenders_are_no_tenth_trials(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of which every tenth trial is told does not tell every repeat after its twentieth."""
    monkeypatch.setattr(shown, "_PLAIN_INTERVAL_S", math.inf)
    with RunProgress("energy", tells_trials=True) as progress:
        progress.measured(event(20))
        for _ in range(3):
            progress.measured(replace(event(20), confirming=True))

    assert [line.partition(":")[0] for line in lines(capsys)] == ["measuring 20"]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_narrow_terminal_cuts_the_details_only(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Phase and number of the trial stay whole."""
    screen = io.StringIO()
    monkeypatch.setattr(
        shown, "PlainConsole", lambda stderr: Console(file=screen, width=width, force_terminal=stderr)
    )
    with RunProgress("energy") as progress:
        progress.compiled(3, 3)
        progress.measured(replace(event(22, 116), confirming=True))

    line = [line for line in screen.getvalue().splitlines() if "confirming" in line][-1]
    assert "22/116" in line
    assert "trial 500.0 mJ" in line


@pytest.mark.parametrize(("widgets", "live"), [(object(), True), (None, False)])
def test_notebooks_are_live_where_they_have_widgets(
    widgets: object, live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``ipywidgets`` a display cannot be drawn anew, and lines are written instead."""
    monkeypatch.setattr(shown, "find_spec", lambda _: widgets)

    assert shown.is_live(Console(file=io.StringIO(), force_jupyter=True)) is live
    assert not shown.is_live(Console(file=io.StringIO(), force_jupyter=False))


def test_costs_have_the_unit_of_what_is_searched_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Under a slowdown limit the fastest trial is looked for first, in seconds."""
    with RunProgress("energy") as progress:
        progress.measured(replace(event(1), objective="time"))
        progress.measured(replace(event(2), objective="energy"))

    told = lines(capsys)
    assert "trial 500.0 ms, best 500.0 ms" in told[0]
    assert "trial 500.0 mJ, best 500.0 mJ" in told[1]
