"""The report of a run: golden texts at four widths, and what holds at any width for any document.

``UPDATE_GOLDEN=1 pytest tests/test_run_report.py`` writes the golden texts anew.
"""

import io
import math
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_driver import result
from report_documents import RECORDED, TX1, Record, break_even_of, run_comparison, run_document, run_trial
from rich.console import Console
from run_documents import answered, trial

from tuner.model.plan import Configuration, TunableValue, shown_values
from tuner.model.trial import Trial
from tuner.report import progress as shown
from tuner.report.answer import comparisons
from tuner.report.progress import CompareProgress, RunProgress
from tuner.report.run_report import run_report
from tuner.report.trials_table import ranked_trials, use_of
from tuner.search.session import TrialEvent

GOLDEN = Path(__file__).parent / "data" / "report"
WIDTHS = (60, 80, 120, 200)
MATMUL = "matmul:width=4096"


def printed(document: Record, width: int, **more: Any) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(run_report(document, width, **more))
    return text.getvalue()


# --- documents -----------------------------------------------------------------------------------


def tile(x: int, y: int, w: int, h: int) -> dict[str, dict[str, Any]]:
    return {
        MATMUL: {"impl": "tiled", "block_size_x": x, "block_size_y": y, "tile_size_x": w, "tile_size_y": h}
    }


MATMULS = [
    run_trial(tile(32, 4, 8, 8), 3.888e-3, 2.452),
    run_trial(tile(32, 4, 4, 8), 3.872e-3, 2.692),
    run_trial(tile(64, 8, 2, 8), 4.192e-3, 2.535),
    run_trial(tile(32, 32, 1, 1), 22.35e-3, 10.716),
    run_trial(tile(16, 16, 4, 4), 5.1e-3, 3.1),
    run_trial(tile(16, 8, 4, 4), 5.2e-3, 3.2),
    run_trial(tile(16, 4, 4, 4), 5.3e-3, 3.3),
]
OF_MATMULS: dict[str, Any] = {"best": 0, "fastest": 1, "default": 3}


def without_joules(trial: Record) -> Record:
    name, time_s = next(iter(trial["configurations"])), trial["time_s"]
    return run_trial({name: trial["configurations"][name]}, time_s)


def co_run(count: int) -> list[Record]:
    kernels = (
        "scan-lf:N=1024",
        "tridiag-wm:N=512",
        "fft:N=1024",
        "convolution-of-images:width=4096,height=2160",
    )
    names = [f"{kernels[i % 4]}{'' if i < 4 else f',variant={i}'}" for i in range(count)]
    base = {"P": 16, "L": 128, "r": 2, "S": 4, "shuffle": True, "store": "direct", "blocks": 1, "cap": 0}
    changes: list[dict[str, Any]] = [
        {},
        {"L": 64},
        {"L": 64, "store": "transpose", "shuffle": False},
        {"r": 8},
    ]
    return [
        run_trial(
            {
                name: {**base, **(change if i % 2 == 0 or len(change) > 1 else {})}
                for i, name in enumerate(names)
            },
            0.078 + 1e-4 * number,
            0.547 + 0.01 * number,
            clock_mhz=None,
        )
        for number, change in enumerate(changes)
    ]


def of_co_run(count: int, **more: Any) -> Record:
    trials = co_run(count)
    together = {"time_s": 0.078, "time_s_uncertainty": 1e-4, "energy_j": 0.547, "energy_j_uncertainty": 1e-3}
    in_turn = together | {"time_s": 0.081, "energy_j": 0.54}
    compared = {
        "together": together,
        "in_turn": in_turn,
        "repeats": 3,
        "workloads": {},
        "time_change": -0.037,
        "time_change_interval": 0.002,
        "energy_change": 0.013,
        "energy_change_interval": 0.0004,
    }
    found = run_document(
        trials, best=0, fastest=0, default=2, batch=32768, one_after_another=compared, **more
    )
    return break_even_of(found, 8810.0)


@pytest.mark.parametrize(("longest_s", "told"), [(0.0765, True), (0.06, False)])
def test_a_workload_that_hides_the_others_is_named(longest_s: float, told: bool) -> None:
    """From 90 % of a round on; below, the others count."""
    document = of_co_run(3)
    compared = document["one_after_another"]
    compared["workloads"] = {name: {"time_s": 0.002} for name in ("a:N=1", "b:N=1")} | {
        "c:N=8": {"time_s": longest_s}
    }
    text = " ".join(" ".join(comparisons(document, 100)).split())
    assert ("c:N=8 alone takes 98 % of a round: the others hide behind it" in text) is told


def test_a_recording_of_several_workloads_tells_its_combinations() -> None:
    """Their number is the product over workloads and clocks; values that it lacks were not left out."""
    document = of_co_run(3, device=RECORDED)
    for workload, size in zip(document["workloads"], (8, 4, 1), strict=True):
        workload["space"] |= {"size": size, "cartesian": 1440}
    document["space"] |= {"size": 64, "measured": 64, "clocks_mhz": [1980, 1500]}
    text = printed(document, 200, verbose=True)

    assert "combinations of recorded configurations: 8 × 4 × 2\n" in text
    assert "done: all 64 replayed in 33 s" in text
    assert "excluded by constraints" not in text


def long_configuration() -> Record:
    names = (
        *("form", "N1", "P1", "L1", "r1", "N2", "P2", "L2", "r2", "passes", "split", "fetch", "promotion"),
        *("bounded", "ring", "lag", "a_tunable_with_a_name_that_fills_half_of_a_line", "scratch", "store"),
    )
    first: dict[str, Any] = {name: 2**place for place, name in enumerate(names)}
    first |= {"form": "ring-tma", "split": False, "fetch": "early", "bounded": True}
    workload = "fft-large-with-a-name-that-goes-on-and-on-for-most-of-the-line:N=262144,direction=inverse"
    trials = [
        run_trial(
            {workload: first | {"P1": 2 + number, "fetch": fetch, "ring": 48 + number}}, 5e-4 + 1e-6 * number
        )
        for number, fetch in enumerate(("early", "late", "never"))
    ]
    return run_document(trials, objective="time", best=0, default=2, fastest=0)


def failed() -> Record:
    where = shown_values(tile(32, 32, 1, 1)[MATMUL])
    message = f"{MATMUL} [{where}]: stage 'matmul', matmul<32> of m.cu: m.cu(7): error: too much shared data"
    compile_errors = [message, *(message.replace("_x=32", f"_x={size}") for size in (64, 128))]
    trials = [
        *MATMULS[:3],
        run_trial(tile(32, 32, 1, 1), None, status="compile-error", detail=compile_errors[0]),
        run_trial(tile(8, 8, 1, 1), None, status="timeout", detail="no answer within 60 s"),
        run_trial(tile(8, 4, 1, 1), None, status="timeout", detail="no answer within 61 s"),
        run_trial(tile(8, 2, 1, 1), None, status="wrong-answer", detail="y[3] is [nan], error 2.1e-3 > 1e-5"),
    ]
    found = run_document(trials, best=0, fastest=1, default=3)
    dropped = {
        "does not compile": 3,
        "occupancy, before compiling": 20,
        "occupancy, of compiled resources": 3,
    }
    dropped |= {"spills registers": 2, "needs compute capability 10.0": 4}
    (workload,) = found["workloads"]
    workload["compile_errors"] = compile_errors
    workload["space"] |= {"dropped": dropped, "min_occupancy": 0.8, "cartesian": 41, "size": 41}
    return found


def flagged() -> Record:
    first = MATMULS[0] | {"flags": ["throttled: sw-power-cap", "unsteady: mean round +2.2% from the median"]}
    notices = [
        "analytical: the server rule chooses, because 132 multiprocessors are more than 20",
        "auto: bayesian, because one workload with 2,074 configurations is too many to measure all",
        f"{MATMUL}: batch capped from 4 to 2 (half of the free device memory)",
        "interrupted: this is what was known; --resume goes on from here",
        "power-limited: 18 of 18 trials ran at the GPU's power limit; lower clocks leave it (--clocks)",
        "precision: asked for ± 1 % of the answer's joules, reached ± 2.9 %; windows are 10 s at most",
    ]
    trials = [first, *MATMULS[1:]]
    return run_document(trials, **OF_MATMULS, status="interrupted", notices=notices, resumed=3)


def limited_slowdown() -> Record:
    trials = [MATMULS[0], MATMULS[1], MATMULS[2] | {"energy_j": 2.3, "clock_mhz": 1500}, *MATMULS[3:]]
    return run_document(
        trials, **OF_MATMULS, objective="energy within 1.00% of the fastest", max_slowdown=0.01
    )


CASES: dict[str, Record] = {
    "one-energy": break_even_of(run_document(MATMULS, **OF_MATMULS)),
    "one-time-with-joules": run_document(MATMULS, objective="time", best=1, fastest=1, default=3),
    "one-time": run_document(
        list(map(without_joules, MATMULS)), objective="time", best=1, fastest=1, default=3
    ),
    "one-recorded": run_document(MATMULS, **OF_MATMULS, device=RECORDED),
    "one-interrupted": flagged(),
    "one-with-slowdown-limit": limited_slowdown(),
    "one-long": long_configuration(),
    "one-failures": failed(),
    "no-answer": run_document(failed()["trials"][3:], best=None, default=0),
    "three-modelled": of_co_run(3, device=TX1),
    "eight": of_co_run(8),
}


@pytest.mark.parametrize("name", CASES)
def test_reports_are_the_golden_ones(name: str) -> None:
    """At 60, 80, 120 and 200 columns a report is word for word what is stored."""
    parts = [f"=== {width} columns\n{printed(CASES[name], width)}" for width in WIDTHS]
    parts.append(f"=== 80 columns, --verbose\n{printed(CASES[name], 80, verbose=True)}")
    path, text = GOLDEN / f"{name}.txt", "\n".join(parts)
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["one-energy", "one-time", "one-time-with-joules", "one-recorded"])
def test_a_lone_kernel_takes_twelve_lines(name: str) -> None:
    """At 80 columns, where nothing failed; nothing in them is told twice."""
    lines = printed(CASES[name], 80).splitlines()

    assert len(lines) <= 12
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize(
    ("energy", "time", "told"),
    [
        (-0.05, -0.02, "co-running gains energy and time against one after another"),
        (0.018, 0.029, "co-running loses energy and time: run these workloads one after another"),
        (0.013, -0.037, "co-running gains time and loses energy against one after another"),
        (-0.001, -0.0002, "co-running brings neither gain nor loss worth having"),
        (None, 0.029, "co-running loses time: run these workloads one after another"),
        (-0.004, -0.004, "co-running brings neither gain nor loss worth having"),
    ],
)
def test_it_is_said_what_co_running_brings(energy: float | None, time: float, told: str) -> None:
    """A gain, a loss, one for the other, or neither; what is less than half a percent is neither."""
    document = of_co_run(3)
    document["one_after_another"] |= {"energy_change": energy, "time_change": time}

    assert told in " ".join(printed(document, 80).split())


def test_what_ties_is_marked_and_counted() -> None:
    """Contenders that tied, and trials that were measured once and cost as much as trials repeat to."""
    trials = [*MATMULS, run_trial(tile(8, 8, 8, 8), 3.9e-3, 2.46), run_trial(tile(8, 4, 8, 8), 3.9e-3, 2.44)]
    document = run_document(trials, **OF_MATMULS, tied=[1, 3])
    ties = {one.number for one in ranked_trials(document) if "tie" in one.marks}

    assert ties == {3, 8, 9}
    assert "tie of 4, this one by rule" in printed(document, 80)
    assert "tie" not in printed(CASES["one-energy"], 80)


# --- what holds for every document ---------------------------------------------------------------

UNIT = re.compile(r"(?: ± [\d.,]+(?:e[+-]?\d+)?)? (?:[mµn]?[sJW]\b|%|MHz|GFlop/s|min\b|h\b)")
DECIMAL = re.compile(r"(?<![\w.=<>-])(?<!NVRTC )[+-]?\d[\d,]*\.\d+")
NAMES = st.text("abcdefgh_", min_size=1, max_size=24)
VALUES = st.one_of(st.integers(0, 10**6), st.booleans(), st.sampled_from(("direct", "transpose", "ring-tma")))


@st.composite
def documents(draw: st.DrawFn) -> Record:
    names = draw(st.lists(st.text("scanft-", min_size=1, max_size=30), min_size=1, max_size=4, unique=True))
    spaces = {f"{name}:N=1024": draw(st.dictionaries(NAMES, VALUES, max_size=8)) for name in names}
    joules = draw(st.booleans())
    trials = []
    for number in range(draw(st.integers(1, 7))):
        changed = {
            name: {
                key: draw(VALUES) if number and draw(st.booleans()) else value for key, value in one.items()
            }
            for name, one in spaces.items()
        }
        time_s = draw(st.floats(1e-7, 20.0))
        failing = number and draw(st.booleans())
        energy_j = draw(st.floats(1e-6, 1e5)) if joules else None
        how = {"status": "crashed", "detail": "out of bounds"} if failing else {}
        trials.append(run_trial(changed, None if failing else time_s, None if failing else energy_j, **how))
    objective = draw(st.sampled_from(("time", *(("energy", "edp") if joules else ()))))
    places = st.one_of(st.none(), st.integers(0, len(trials) - 1))
    device = draw(st.sampled_from((TX1, RECORDED, run_document(trials)["device"])))
    return run_document(
        *(trials,),
        objective=objective,
        device=device,
        default=draw(places),
        fastest=0,
        batch=draw(st.integers(1, 10**6)),
    )


@given(documents(), st.integers(60, 240))
@settings(max_examples=60)
def test_no_line_is_wider_than_the_console(document: Record, width: int) -> None:
    """Whatever is told: lines fit, nothing is cut, every value of the answer is there, numbers have units."""
    text = printed(document, width, verbose=True)

    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    for configuration in document["best"]["configurations"].values():
        for word in shown_values(configuration).split():
            assert re.search(rf"(?<![\w-]){re.escape(word)}(?!\w)", text), word
    joined = " ".join(text.split())
    for found in DECIMAL.finditer(joined):
        assert UNIT.match(joined, found.end()), joined[found.start() - 30 : found.end() + 30]


@given(documents())
@settings(max_examples=20)
def test_a_pipe_gets_whole_lines(document: Record) -> None:
    """Where lines may be of any width, a row of a table is a line and a sentence is one."""
    text = printed(document, 10_000)

    for configuration in document["best"]["configurations"].values():
        assert shown_values(configuration) in text
    assert not any(re.match(r" {4,}[a-z_]+\S*=", line) for line in text.splitlines())


def test_trials_are_ranked_by_cost_behind_the_answer() -> None:
    """The answer is first, others follow by their cost, and those that failed or are too slow come last."""
    ranked = ranked_trials(CASES["one-energy"])
    assert [one.number for one in ranked] == [1, 3, 2, 5, 6, 7, 4]
    assert [one.rank for one in ranked] == list(range(1, 8))
    assert [one.marks for one in ranked[:3]] == [("answer",), (), ("fastest",)]

    slow = {one.number: one.marks for one in ranked_trials(CASES["one-with-slowdown-limit"])}
    assert slow[3] == ("too slow",)
    assert slow[1] == ("answer",)
    crashed = ranked_trials(CASES["one-failures"])[-1]
    assert (crashed.rank, crashed.cost) == (None, None)


def test_a_search_for_time_says_what_energy_would_save() -> None:
    """Where joules were measured; a search for energy says it by the fastest trial."""
    assert "least energy instead: -8.9 ± 0.1 % energy for +0.4 ± 0.2 % time, measured once each" in printed(
        CASES["one-time-with-joules"], 120
    )
    assert "  fastest   -8.9 ± 0.1 %   +0.4 ± 0.2 %" in printed(CASES["one-energy"], 80)
    assert "least energy" not in printed(CASES["one-time"], 80)


def test_a_failure_is_told_once() -> None:
    """A default that does not compile is in the trials and in the compiler's messages: one failure."""
    brief, full = printed(CASES["one-failures"], 200), printed(CASES["one-failures"], 200, verbose=True)

    assert brief.count("does not compile: ") == 1
    assert "failed: 3 × does not compile: " in brief
    assert "failed: 2 × timeout: " in brief
    assert full.count("does not compile: ") == 1
    assert full.count("failed: timeout: ") == 2, "their texts differ"
    assert "the same: " in full
    assert "[nan]" in full, "brackets stay brackets"


def test_what_was_told_above_is_not_repeated() -> None:
    """Notices that stand above are left out, and those of the policy are told on demand."""
    document = CASES["one-interrupted"]
    analytical, *_ = document["notices"]

    assert analytical not in printed(document, 200)
    assert analytical in printed(document, 200, verbose=True)
    assert analytical not in printed(document, 200, verbose=True, seen=[analytical])
    assert "precision: " not in printed(document, 200)
    assert "power-limited: " in printed(document, 200)


@pytest.mark.parametrize(
    ("held", "told", "shown"),
    [
        (False, "refuted: the answer of GPU-1 is not the best here", "refuted: the answer of GPU-1 is"),
        (False, "verified: the answer of GPU-1 is not the best here", "refuted: the answer of GPU-1 is"),
        (None, "not verified: the answer of GPU-1 is not judged", "not verified: the answer of GPU-1 is"),
    ],
)
def test_a_refuted_verification_is_told(held: bool | None, told: str, shown: str) -> None:
    """Also of a run that an older version has stored; once, where it stands above."""
    document = CASES["one-energy"] | {"verification": {"held": held, "told": told}}

    assert shown in printed(document, 200)
    assert shown not in printed(document, 200, seen=[told])


def test_a_verification_that_holds_is_told_on_demand() -> None:
    """It changes nothing of how the numbers are read."""
    told = "verified: the answer of GPU-1 holds on this GPU"
    document = CASES["one-energy"] | {"verification": {"held": True, "told": told}}

    assert told not in printed(document, 200)
    assert told in printed(document, 200, verbose=True)


def test_flags_are_what_a_compiler_takes() -> None:
    """Booleans are 1 and 0; a comma is escaped for nvcc; what a shell would read otherwise is a header's."""

    def use(run: int | None, named: str = "", **values: TunableValue) -> tuple[str, list[str]]:
        document = answered(trial({"k": values}))
        assert document["best"] is not None
        return use_of(document["best"], document["workloads"][0], run, named)

    assert use(12, P=16, pad=True, taps="-1,0") == (r"-DP=16 -Dpad=1 '-Dtaps=-1\,0'", [])
    assert use(12, " --database x.db", mode="a b") == (
        "tuner export 12 --format header --database x.db --output tuned.h",
        [],
    )
    nothing, (why,) = use(None, mode="a b")
    assert nothing == ""
    assert why.startswith("no options: mode: its value 'a b'")


def test_the_report_is_what_rich_prints() -> None:
    """``run_report`` is a renderable of a given width, whatever the console's."""
    text = io.StringIO()
    Console(file=text, width=300).print(run_report(CASES["one-energy"], 80))
    assert text.getvalue() == printed(CASES["one-energy"], 80)


def test_an_answer_without_its_list_of_trials_is_shown() -> None:
    """Stored answers have no list: the trials that they name make the table."""
    document = {key: value for key, value in CASES["one-energy"].items() if key != "trials"}
    text = printed(document, 120, verbose=True)

    assert "trials (3; " in text
    assert "default" in text


def test_comparisons_of_single_windows_say_so() -> None:
    """Where trials were not measured in turn, the line says that each was measured once."""
    document = CASES["one-energy"] | {"against_default": run_comparison(MATMULS[0], MATMULS[3], paired=False)}
    assert "measured once each" in printed(document, 120)


# --- The progress of a run: what is compiled, beside the trials.


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
