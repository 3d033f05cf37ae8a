"""Numbers with units, the document of a run and its tables, made by hand."""

import io
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelled import device
from rich.console import Console

from tuner.kernel_files.catalog import Catalog
from tuner.measurement.paired import PairedRepeats, Repeatability, compared
from tuner.model.objective import COVERAGE, Objective, choose
from tuner.model.records import Conditions, RunStatus
from tuner.model.run_document import RunDocument
from tuner.model.trial import (
    ASSUMED_SCATTER,
    Energy,
    Flag,
    FlagKind,
    Measurement,
    Status,
    Trial,
    WorkloadResult,
)
from tuner.model.units import half_percent, percent, si, significant, with_uncertainty
from tuner.report.run_report import run_report
from tuner.search.answer import Outcome
from tuner.search.candidates import PreparedWorkload
from tuner.search.compilation import Compilation, prepare_compiled
from tuner.search.document import document, energy_share
from tuner.search.plan import SearchPlan
from tuner.search.request import SearchRequest

PREFIXES = {"": 1.0, "m": 1e-3, "µ": 1e-6, "n": 1e-9}

# --- units ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.00123, "1.230 ms"),
        (1.0, "1.000 s"),
        (0.99996, "1.000 s"),
        (12.3456e-6, "12.35 µs"),
        (2.5e-9, "2.500 ns"),
        (17420.4, "17,420 s"),
        (0.0, "0 s"),
        (-0.002, "-2.000 ms"),
        (3e-12, "3.000e-12 s"),
        (None, "–"),
        (math.inf, "–"),
        (math.nan, "–"),
    ],
)
def test_si(value: float | None, shown: str) -> None:
    """Four significant digits, the prefix that fits, a dash for what is not known."""
    assert si(value, "s") == shown


@given(st.floats(1e-9, 1e9))
def test_si_reads_back(value: float) -> None:
    """What is shown is the value to four significant digits, whatever its size."""
    number, unit = si(value, "J").split(" ")

    assert float(number.replace(",", "")) * PREFIXES[unit[:-1]] == pytest.approx(value, rel=5.1e-4)


@given(st.floats(1e-6, 1e9))
def test_significant_has_no_exponent(value: float) -> None:
    """Rates are shown plainly."""
    shown = significant(value)

    assert "e" not in shown
    assert float(shown.replace(",", "")) == pytest.approx(value, rel=5.1e-4)


@pytest.mark.parametrize(
    ("value", "uncertainty", "shown"),
    [
        (0.771, 0.0012, "771.0 ± 1.2 mJ"),
        (1.2555, 0.0022, "1.2555 ± 0.0022 J"),
        (100.0, 30.0, "100 ± 30 J"),
        (66377.0, 1629.0, "66,377 ± 1,629 J"),
        (176.88e-6, 0.28e-6, "176.88 ± 0.28 µJ"),
        (-2e-6, 0.0548, "0 ± 55 mJ"),
        (13e-3, 0.337, "13 ± 337 mJ"),
        (1.0, 0.0, "1.000 J"),
        (1.0, None, "1.000 J"),
        (None, 1.0, "–"),
    ],
)
def test_interval_has_two_digits(value: float | None, uncertainty: float | None, shown: str) -> None:
    """The interval has two significant digits and the value stops where they do."""
    assert with_uncertainty(value, uncertainty, "J") == shown


def test_a_number_without_a_unit_has_no_prefix() -> None:
    """A ratio is written as it is, not in thousandths."""
    assert with_uncertainty(0.952, 0.004, "") == "0.9520 ± 0.0040"


@given(st.floats(1e-8, 1e6), st.floats(1e-4, 0.5))
def test_interval_reads_back(value: float, relative: float) -> None:
    """Value and interval are shown to a twentieth of the interval or better, in one unit."""
    number, _, interval, unit = with_uncertainty(value, value * relative, "J").split(" ")
    scale = PREFIXES[unit[:-1]]

    assert float(number.replace(",", "")) * scale == pytest.approx(value, abs=0.051 * value * relative)
    assert float(interval.replace(",", "")) * scale == pytest.approx(value * relative, rel=0.051)


def test_an_interval_of_rounding_errors_has_no_digits() -> None:
    """Repeats of a model may agree to the last bit, which is no number to print."""
    assert [half_percent(0.0043), half_percent(1e-16)] == ["0.43 %", "0.0001 % or less"]


def test_percent_has_a_sign() -> None:
    """A change says which way it goes; an unknown one is a dash."""
    assert [percent(0.1234), percent(-0.5), percent(0.0), percent(None)] == [
        *("+12.3 %", "-50.0 %", "+0.0 %", "–")
    ]


def _word(value: object) -> str:
    """As the tables write it: booleans as 0 and 1."""
    return str(int(value)) if isinstance(value, bool) else str(value)


# --- a run made by hand --------------------------------------------------------------------------

SPECS = ("scan-lf:N=64", "fft:N=64")


@pytest.fixture(scope="module")
def prepared() -> tuple[PreparedWorkload, ...]:
    catalog = Catalog.load(search_path=None)
    pairs = [(catalog.kernel(spec.partition(":")[0]), catalog.workload(spec)) for spec in SPECS]
    gpu = device("k40c")
    return tuple(prepare_compiled(pairs, gpu))


def measured(
    times: tuple[float, float], joules: float | None, uncertainty: float = 0.002, **more: Any
) -> Measurement:
    makespan = max(times)
    energy = None if joules is None else Energy(joules, uncertainty, joules / makespan, "counter", "gpu")
    return Measurement(
        results=tuple(WorkloadResult(Status.OK, time, 0.01 * time) for time in times),
        makespan_s=makespan,
        makespan_spread_s=0.001 * makespan,
        energy=energy,
        rounds=100,
        window_s=2.0,
        check_s=0.1,
        energy_total_j=30.0,
        **more,
    )


def replace_joules(measurement: Measurement, factor: float) -> Measurement:
    """The same with so many times its joules."""
    assert measurement.energy is not None
    return replace(measurement, energy=replace(measurement.energy, joules=factor * measurement.energy.joules))


def failed(status: Status, detail: str) -> Measurement:
    """The first workload fails; the second was right in its check."""
    return Measurement((WorkloadResult(status, detail=detail), WorkloadResult(Status.OK)), energy_total_j=1.0)


def make(
    prepared: tuple[PreparedWorkload, ...],
    measurements: list[Measurement],
    *,
    resumed: int = 0,
    modelled: bool = True,
    paired: Sequence[Sequence[Measurement]] = (),
    alone: Sequence[tuple[Measurement, Sequence[Measurement]]] = (),
) -> Any:
    """The document of a run that measured these, the default trial first."""
    first = Trial(tuple(item.default for item in prepared))
    others = [
        Trial((candidate.configuration, prepared[1].default))
        for candidate in prepared[0].candidates
        if candidate.configuration != prepared[0].default
    ]
    trials = list(zip([first, *others], measurements, strict=False))
    identity = device("k40c").identity
    conditions = Conditions(
        tuple((str(item.workload), item.workload.batch) for item in prepared),
        {},
        identity if modelled else type(identity)("cuda:0", "A GPU", "GPU-1", "570", "12.9", False),
        "energy",
        "greedy",
        0,
        "off",
        {},
    )
    outcome = Outcome(
        status=RunStatus.FINISHED,
        trials=trials,
        measurements=tuple(measurements[resumed:]),
        windows_s=sum(measurement.window_s for measurement in measurements[resumed:]),
        joules=sum(measurement.energy_total_j for measurement in measurements),
        answer=choose(Objective("energy"), trials),
        default=0,
        fastest=choose(Objective("time"), trials),
        objective=Objective("energy"),
        resumed=resumed,
        wall_s=3.0,
        prepare_s=1.0,
        paired=PairedRepeats(
            tuple(dict(zip((trial for trial, _ in trials), repeat, strict=True)) for repeat in paired)
        ),
        repeatability={"energy": Repeatability(0.02, 3)} if paired else {},
        co_run=compared(trials[0][0], alone),
        notices=["a notice [with] brackets"],
    )
    plan = SearchPlan(
        SearchRequest(policy="greedy"),
        tuple((item.kernel, item.workload) for item in prepared),
        (),
        (),
        conditions,
    )
    return document(plan, outcome, Compilation(prepared, device("k40c")).known())


def shown(record: RunDocument) -> str:
    text = io.StringIO()
    Console(file=text, width=200).print(run_report(record, 200, verbose=True))
    return text.getvalue()


GOOD = [
    measured((0.004, 0.010), 2.0),  # default
    measured((0.003, 0.008), 1.8),  # fastest
    measured((0.005, 0.009), 1.5),  # answer
]


def test_answer_default_and_fastest_are_told_apart(prepared: tuple[PreparedWorkload, ...]) -> None:
    """The three trials a reader compares are in the document with their own numbers."""
    record = make(prepared, GOOD)

    assert [record[key]["energy_j"] for key in ("default", "fastest", "best")] == [2.0, 1.8, 1.5]
    assert [record[key]["time_s"] for key in ("default", "fastest", "best")] == [0.010, 0.008, 0.009]
    assert record["wall_s"] == 4.0
    assert record["tuning_energy_j"] == 90.0


def test_trade_off_is_that_of_table_iv(prepared: tuple[PreparedWorkload, ...]) -> None:
    """Slowdown and saving are against the fastest trial; single windows carry what minutes may change."""
    trade = make(prepared, GOOD)["trade_off"]
    relative = math.hypot(0.002 / 1.5, 0.002 / 1.8, ASSUMED_SCATTER, ASSUMED_SCATTER)

    assert trade["slowdown"] == pytest.approx(0.009 / 0.008 - 1)
    assert trade["energy_saving"] == pytest.approx(1 - 1.5 / 1.8)
    assert trade["energy_saving_interval"] == pytest.approx(COVERAGE * 1.5 / 1.8 * relative)


def test_trade_off_against_itself_is_exactly_nothing(prepared: tuple[PreparedWorkload, ...]) -> None:
    """Where the fastest trial is the answer there is no saving, and no doubt of it."""
    trade = make(prepared, GOOD[:1])["trade_off"]

    nothing = dict.fromkeys(("slowdown", "slowdown_interval", "energy_saving", "energy_saving_interval"), 0.0)
    assert trade == nothing | {"turn_by_turn": None}


def test_an_answer_is_not_compared_with_itself(prepared: tuple[PreparedWorkload, ...]) -> None:
    """Where the answer is the default or the fastest trial the tables say that, and no zeros."""
    both, fastest = shown(make(prepared, GOOD[:1])), shown(make(prepared, GOOD[:2]))

    assert "the answer is the default configuration and the fastest trial" in both
    assert "against " not in both.split("trials (")[0]
    assert "the answer is the fastest trial" in fastest
    assert re.search("default +-", fastest)
    assert "the answer is" not in shown(make(prepared, GOOD))


def test_savings_are_turn_by_turn_where_they_can_be(prepared: tuple[PreparedWorkload, ...]) -> None:
    """A drift that all contenders of a repeat share is in no saving; how well trials repeat is told apart."""
    drift = (1.0, 1.02, 0.98)
    paired = [[replace_joules(measurement, factor) for measurement in GOOD] for factor in drift]
    record = make(prepared, GOOD, paired=paired)
    text = shown(record)

    for key, saving in (("against_default", 1 - 1.5 / 2.0), ("trade_off", 1 - 1.5 / 1.8)):
        assert record[key]["turn_by_turn"] is True
        assert record[key]["energy_saving"] == pytest.approx(saving)
        assert record[key]["energy_saving_interval"] < 0.006
    assert re.search(r"default +-25\.0 ± 0\.5 %", text)
    assert "measured once each" not in text
    assert record["repeatability"] == {"trials": 3, "energy_interval": 0.02, "time_interval": None}
    assert "trials repeat to ± 2 % in energy (95 %, modelled): 3 contenders" in text


def alone(time_s: float, joules: float) -> Measurement:
    """One workload of two by itself, with joules."""
    both = measured((time_s, time_s), joules)
    return replace(both, results=both.results[:1])


def test_a_line_says_what_co_running_brings(prepared: tuple[PreparedWorkload, ...]) -> None:
    """The answer together against its workloads one after another, in time and joules where there are any."""
    parts = [alone(0.004, 1.0), alone(0.008, 1.5)]
    record = make(prepared, GOOD, alone=[(GOOD[0], parts), (GOOD[0], parts)])

    text = " ".join(shown(record).split())
    assert re.search(r"one after another -20\.0 ± \S+ % -16\.7 ± \S+ % 12\.00 ms 2\.50", text)
    assert "co-running gains energy and time against one after another" in text
    found = record["one_after_another"]
    assert (found["time_change"], found["energy_change"]) == pytest.approx((-1 / 6, -0.2))
    assert list(found["workloads"]) == [workload["name"] for workload in record["workloads"]]

    no_joules = [replace(part, energy=None) for part in parts]
    brief = make(prepared, GOOD, alone=[(replace(GOOD[0], energy=None), no_joules)])
    assert brief["one_after_another"]["energy_change"] is None
    assert re.search(r"one after another -16\.7 ± \S+ % 12\.00 ms", " ".join(shown(brief).split()))
    assert "one after another" not in shown(make(prepared, GOOD))


def test_documents_of_old_answers_are_shown(prepared: tuple[PreparedWorkload, ...]) -> None:
    """An answer that was stored before trials were compared in paired repeats has fewer lines."""
    record = make(prepared, GOOD)
    for key in ("against_default", "repeatability", "one_after_another"):
        del record[key]
    del record["trade_off"]["turn_by_turn"]

    for key in ("run", "sources", "settings", "least_energy", "energy_trade_off"):
        del record[key]

    del record["window_scatter"]
    assert re.search(r"fastest +-16\.7 ± 1\.0 %", shown(record))


def test_energy_shares_add_up() -> None:
    """The joules of a round are shared by the workloads' own times, all of them."""
    shares = [energy_share(GOOD[0], position) for position in (0, 1)]

    assert shares == [pytest.approx(2.0 * 4 / 14), pytest.approx(2.0 * 10 / 14)]
    assert energy_share(measured((0.1, 0.2), None), 0) is None


def test_the_temperature_at_which_joules_hold_is_told(prepared: tuple[PreparedWorkload, ...]) -> None:
    """It stands behind the clock; what the GPU still warms by is in the interval, and `--verbose` says so."""
    told = make(prepared, [replace(one, temperature_c=46.6) for one in GOOD])

    assert told["best"]["temperature_c"] == 46.6
    assert " at 47 °C" in shown(told)
    assert "of which ± 1.2 % for what the GPU may still warm by" in shown(told)
    assert " °C" not in shown(make(prepared, GOOD))


def test_rate_is_in_the_units_of_the_kernel_file(prepared: tuple[PreparedWorkload, ...]) -> None:
    """2**26 numbers in 5 ms are 13,422 MData/s; per watt it is that over the workload's share of power."""
    part = make(prepared, GOOD)["workloads"][0]
    watts = 1.5 * 5 / 14 / 0.005

    assert part["rate_name"] == "MData/s"
    assert part["best"]["rate"] == pytest.approx(2**26 / 0.005 / 1e6)
    assert part["best"]["rate_per_watt"] == pytest.approx(part["best"]["rate"] / watts)


def test_space_is_counted_before_and_after_pruning(prepared: tuple[PreparedWorkload, ...]) -> None:
    """Size is the product of the spaces, pruned that of the candidates, measured and failed the trials."""
    space = make(prepared, [*GOOD, failed(Status.TIMEOUT, "no answer")])["space"]

    assert space["size"] == len(prepared[0].space) * len(prepared[1].space)
    assert space["pruned"] == len(prepared[0].candidates) * len(prepared[1].candidates)
    assert (space["measured"], space["failed"]) == (4, 1)


def test_wall_counts_no_trial_of_the_killed_run(prepared: tuple[PreparedWorkload, ...]) -> None:
    """Windows and checks of trials that were taken over are not time of this run."""
    assert make(prepared, GOOD, resumed=2)["wall"]["windows_s"] == pytest.approx(2.0)
    assert make(prepared, GOOD)["wall"]["checks_s"] == pytest.approx(0.3)


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_narrow_console_keeps_the_answer(prepared: tuple[PreparedWorkload, ...], width: int) -> None:
    """Whatever the width, the configuration of every workload is printed; rates give way first."""
    record = make(prepared, GOOD)
    text = io.StringIO()
    Console(file=text, width=width).print(run_report(record, width))

    for workload in record["workloads"]:
        for name, value in workload["best"]["configuration"].items():
            assert f"{name}={_word(value)}" in text.getvalue()


def test_failures_are_named_once(prepared: tuple[PreparedWorkload, ...]) -> None:
    """Status, workload, configuration and reason of a failure are printed; brackets stay brackets."""
    record = make(prepared, [*GOOD, failed(Status.TIMEOUT, "no answer [yet]")])
    text = shown(record)
    configuration = record["trials"][3]["configurations"]["scan-lf:N=64"]

    assert f"failed: timeout: scan-lf:N=64 [P={configuration['P']} L={configuration['L']}" in text
    assert text.count("no answer [yet]") == 1
    assert "a notice [with] brackets" in text
    assert "policy: greedy; 1 trial failed" in text


def test_many_failures_are_cut_and_counted(prepared: tuple[PreparedWorkload, ...]) -> None:
    """A space full of failures does not bury the answer: those of one kind are one line."""
    alike = [failed(Status.CRASHED, f"fault {i}") for i in range(12)]
    others = [failed(Status.CRASHED, word) for word in ("one", "two", "three")]
    text = io.StringIO()
    document = make(prepared, [*GOOD, *alike, *others])
    Console(file=text, width=200).print(run_report(document, 200))

    assert "failed: 12 × crashed: scan-lf:N=64 [" in text.getvalue()
    assert text.getvalue().count("crashed: ") == 3
    assert "failed for 1 other reason too: --verbose" in text.getvalue()


def test_no_valid_trial_has_no_table(prepared: tuple[PreparedWorkload, ...]) -> None:
    """When everything failed that is what the tables say; best is null."""
    record = make(prepared, [failed(Status.WRONG_ANSWER, "error 1")])

    assert record["best"] is None
    assert record["trade_off"] is None
    assert "no valid trial: there is no answer" in shown(record)


def test_failed_default_gives_no_comparison(prepared: tuple[PreparedWorkload, ...]) -> None:
    """Without the default's numbers there is no gain to state, and the answer stands all the same."""
    text = shown(make(prepared, [failed(Status.CRASHED, "fault"), *GOOD[1:]]))

    assert "the default failed: there is no comparison with it" in text
    assert "the default  " not in text


def test_time_alone_has_no_joules(prepared: tuple[PreparedWorkload, ...]) -> None:
    """Where no sensor answers the document holds nulls and the tables no joules of a trial."""
    record = make(prepared, [measured((0.004, 0.010), None)])

    assert record["best"] is None, "an energy objective has no answer without joules"
    assert record["fastest"]["time_s"] == 0.010
    assert record["fastest"]["energy_j"] is None
    assert record["fastest"]["energy_j_uncertainty"] is None
    assert " J" not in shown(record).split("tuning took")[0]


def test_measured_numbers_are_not_called_modelled(prepared: tuple[PreparedWorkload, ...]) -> None:
    """On a GPU only what follows from a share of the joules is modelled; the sensor is named."""
    text = shown(make(prepared, GOOD, modelled=False))

    assert "share (modelled)" in text
    assert text.count("modelled") == 3, "the share, and what two workloads do per watt of it"
    assert "energy: counter, scope gpu" in text


def test_net_joules_are_stated_with_their_uncertainty(prepared: tuple[PreparedWorkload, ...]) -> None:
    """Joules above idle stand below the total, and in the document; 50 W over 9 ms are 0.45 J."""
    trials = []
    for measurement in GOOD:
        assert measurement.energy is not None
        energy = replace(measurement.energy, idle_watts=50.0, idle_uncertainty_w=0.3)
        trials.append(replace(measurement, energy=energy))
    record = make(prepared, trials)
    best, text = record["best"], shown(record)

    assert best["energy_net_j"] == pytest.approx(1.5 - 50.0 * 0.009)
    assert best["energy_net_j_uncertainty"] == pytest.approx(math.hypot(0.002, 0.3 * 0.009))
    assert (best["idle_w"], best["idle_w_uncertainty"]) == (50.0, 0.3)
    assert "net of idle (50.00 ± 0.59 W at its clock): 1.0500 ± 0.0066 J per round, -30.0 %" in text


def test_without_idle_power_nothing_is_net(prepared: tuple[PreparedWorkload, ...]) -> None:
    """Where idle power was not read the document has nulls; the tables of old documents lack the line."""
    record = make(prepared, GOOD)

    assert record["best"]["energy_net_j"] is None
    assert record["best"]["idle_w"] is None
    assert record["best"]["idle_w_uncertainty"] is None
    for key in ("energy_net_j", "energy_net_j_uncertainty", "idle_w", "idle_w_uncertainty"):
        del record["best"][key]
    assert "net of idle" not in shown(record)


def test_flags_are_printed(prepared: tuple[PreparedWorkload, ...]) -> None:
    """What a reader must know of the answer's measurement stands below it."""
    text = shown(
        make(prepared, [measured((0.004, 0.010), 2.0, flags=(Flag(FlagKind.THROTTLED, "thermal"),))])
    )

    assert "beware: throttled: thermal" in text
    assert text.index("beware") < text.index("trials (")


def test_what_was_left_out_is_counted(prepared: tuple[PreparedWorkload, ...]) -> None:
    """What spilled, could not run here or is below the threshold is said with its reason."""
    pruned = {"occupancy, before compiling": 9, "spills registers": 1200, "needs compute capability 9.0": 3}
    text = shown(make((replace(prepared[0], pruned=pruned), prepared[1]), GOOD))

    assert "left out of scan-lf:N=64: 9 × below the occupancy threshold of " in text
    assert "(--min-occupancy), 1,200 × spills registers, 3 × needs compute capability 9.0" in text


def test_an_answer_that_spills_is_a_warning(prepared: tuple[PreparedWorkload, ...]) -> None:
    """A default that spills can win; who reads the answer is told."""
    first = replace(prepared[0], spilling=frozenset({prepared[0].default}))
    record = make((first, prepared[1]), [measured((0.004, 0.010), 2.0)])

    assert record["workloads"][0]["best"]["spills"] is True
    assert record["workloads"][1]["best"]["spills"] is False
    assert "beware: scan-lf:N=64 spills registers" in shown(record)
    for part in record["workloads"]:
        del part["best"]["spills"]
    assert "beware" not in shown(record), "answers stored before this was known are still shown"


def test_every_key_is_documented(prepared: tuple[PreparedWorkload, ...]) -> None:
    """docs/run-json.md names each key of the document, of a trial, of a comparison and of a workload."""
    text = (Path(__file__).parent.parent / "docs" / "run-json.md").read_text()
    record = make(prepared, GOOD, paired=[GOOD], alone=[(GOOD[0], [alone(0.004, 1.0), alone(0.008, 1.5)])])
    workload, co_run = record["workloads"][0], record["one_after_another"]
    parts = [record, record["best"], record["trade_off"], record["repeatability"], record["wall"], workload]
    parts += [co_run, co_run["in_turn"]]

    for part in (*parts, workload["best"]):
        assert [key for key in part if f"`{key}`" not in text] == []
