"""The analytical model as a policy: choices, laws, fallbacks, and what the server rule gives on an H200."""

import importlib
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_driver import candidate as unbuilt
from policy_driver import choice_of, play, result, search_over
from tuner.policies.analytical import choose, first_compiled

from tuner.model import registry
from tuner.model.errors import InputError
from tuner.model.jobs import DeviceLimits
from tuner.model.plan import Configuration, Resources, TunableValue, Work
from tuner.model.trial import Measurement, Trial
from tuner.recordings.files import RecordingFile
from tuner.space.occupancy import candidate, device_limits, launch
from tuner.space.search_view import Candidate, Search

analytical = registry.load("policy", "analytical")
analytical_module = importlib.import_module("tuner.policies.analytical")
rating = importlib.import_module("tuner.policies.rating")
TX1 = device_limits((5, 3), multiprocessors=2, memory_bytes=2**32, l2_bytes=2**18)
H200 = device_limits((9, 0), multiprocessors=132, memory_bytes=2**37, l2_bytes=2**26)
ROLES = {"elements_per_thread": "P", "threads_per_block": "L", "radix": "r"}
WORK = Work(bytes=2.0**29, operations=2.0**27)
ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "tuner" / "recordings" / "h200.zip"
RESULTS = ROOT / "benchmarks" / "results" / "analytical-phi-h200.json"

Shape = tuple[int, int, int, int]
"""P, L, registers, shared bytes."""


def built(
    shape: Shape,
    r: int = 2,
    limits: DeviceLimits = H200,
    *,
    resident: bool = False,
    stages: int = 1,
    work: Work | None = WORK,
    **others: TunableValue,
) -> Candidate:
    """A candidate of equal launches for problems of 2**26 elements."""
    P, L, registers, shared_bytes = shape
    stage = launch(
        limits,
        blocks=2**26 // (P * L),
        threads_per_block=L,
        shared_bytes=shared_bytes,
        registers_per_thread=registers,
        resident=resident,
    )
    named: dict[str, TunableValue] = {"P": P, "L": L, "r": r, "registers": registers, "shared": shared_bytes}
    return candidate(Configuration(named | others), [stage] * stages, ROLES, work=work)


def best(candidates: Sequence[Candidate], rule: str | None = None, limits: DeviceLimits = H200) -> Candidate:
    """What is chosen."""
    chosen = choice_of(candidates, limits, ROLES, rule=rule).best.candidate
    assert isinstance(chosen, Candidate)
    return chosen


# --- which rule ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("multiprocessors", "rule"), [(1, "embedded"), (20, "embedded"), (21, "server")])
def test_multiprocessors_decide_the_rule(multiprocessors: int, rule: str) -> None:
    """Up to the 20 of the largest embedded GPU it is the paper's guideline; the reason has the number."""
    limits = replace(H200, multiprocessors=multiprocessors)

    choice = choice_of([built((4, 128, 32, 0))], limits, ROLES)

    assert choice.rule == rule
    assert str(multiprocessors) in choice.reasons[0]


def test_an_unknown_rule_is_named() -> None:
    """The message lists the rules there are."""
    with pytest.raises(InputError, match="'best'; choose from embedded, server"):
        choice_of([built((4, 128, 32, 0))], H200, ROLES, rule="best")


def test_what_the_kernel_file_states_comes_first() -> None:
    """It is the answer, whatever the rules prefer, unless one of these is asked for."""
    plain, stated = built((8, 64, 32, 0)), replace(built((4, 1024, 64, 0), stages=3), stated=1)

    choice = choice_of([plain, stated], H200, {})
    assert choice.best.candidate is stated
    assert choice.rule == "stated"
    assert choice.reasons[0] == "stated rule: the kernel file has an answer"
    assert choice_of([plain, stated], H200, ROLES, rule="server").best.candidate is plain
    search = replace(search_over([plain, stated]), limits=H200)
    assert [one.configurations[0] for one in first_compiled(search)] == [stated.configuration]


def test_a_stated_answer_that_is_ruled_out() -> None:
    """Where compiling rules it out there is none."""
    stated = replace(built((4, 1024, 64, 0)), stated=1, declared=True)

    assert choose([stated], H200, ROLES, resolve=lambda _: [None]) is None


@pytest.mark.parametrize(("ruled_out", "compiled"), [(0, [1]), (1, [1, 2]), (2, [1, 2, 3]), (3, [1, 2, 3])])
def test_the_first_stated_answer_that_compiling_leaves(ruled_out: int, compiled: list[int]) -> None:
    """Answers are compiled in the order of the kernel file, up to the first that is not ruled out."""
    answers = [
        replace(built((P, 64, 32, 0)), stated=place, declared=True) for P, place in ((4, 3), (8, 1), (2, 2))
    ]
    asked: list[int] = []

    def resolve(found: Sequence[Candidate]) -> list[Candidate | None]:
        asked.extend(one.stated for one in found)
        return [replace(one, declared=False) if one.stated > ruled_out else None for one in found]

    choice = choose([built((16, 64, 32, 0)), *answers], H200, ROLES, resolve=resolve)

    assert asked == compiled
    assert (None if choice is None else choice.best.candidate.stated) == (
        ruled_out + 1 if ruled_out < len(answers) else None
    )
    search = replace(search_over(answers), limits=H200)
    assert [one.configurations[0]["P"] for one in first_compiled(search)] == [8]


# --- the server rule -----------------------------------------------------------------------------


def test_too_few_bytes_in_flight_lose_to_enough() -> None:
    """64 KiB at full occupancy (P = 4) against 128 KiB at half of it (P = 16)."""
    full, deep = built((4, 128, 32, 0)), built((16, 32, 32, 0))

    assert (full.occupancy, deep.occupancy) == (1.0, 0.5)
    assert best([full, deep]) is deep


def test_more_than_enough_bytes_in_flight_do_not_count() -> None:
    """128 and 256 KiB are the same; the smaller P then wins."""
    enough, plenty = built((8, 64, 32, 0)), built((16, 64, 32, 0))

    assert best([plenty, enough]) is enough


def test_of_equals_the_smaller_block_wins_and_then_less_shared_memory() -> None:
    """Small blocks wait less at barriers."""
    large, small, shared = built((8, 256, 32, 0)), built((8, 64, 32, 0)), built((8, 64, 32, 512))

    assert best([large, shared, small]) is small


def test_occupancy_is_no_aim_of_its_own() -> None:
    """A quarter of the warps in small blocks goes before half of them in large ones: both hold enough."""
    small, large = built((32, 32, 128, 0)), built((16, 256, 64, 0))

    assert (small.occupancy, large.occupancy) == (0.25, 0.5)
    assert best([large, small]) is small


def test_a_small_grid_counts_as_it_is_spread() -> None:
    """Of a grid of 132 blocks a multiprocessor has one, however many would fit."""
    one = candidate(
        Configuration({"P": 4, "L": 64, "r": 2}),
        [launch(H200, blocks=132, threads_per_block=64, shared_bytes=0, registers_per_thread=32)],
        ROLES,
        work=Work(bytes=132 * 2048.0, operations=0.0),
    )

    assert choice_of([one], H200, ROLES).best.bytes_in_flight == 2048


def test_shared_problems_take_fewer_launches_first() -> None:
    """A pass over memory costs more than anything within one."""
    once = built((4, 1024, 64, 0), stages=1)
    twice = built((16, 128, 32, 0), stages=2)

    assert best([twice, once]) is once


def test_shared_problems_prefer_blocks_that_stay_and_prefetch() -> None:
    """They need no half of the warps, and more shared memory is more that is fetched ahead."""
    several = built((4, 1024, 64, 0), stages=2)
    passing = built((16, 512, 64, 65536))
    staying = built((32, 512, 128, 65536), resident=True)
    fetching = built((32, 512, 128, 131072), resident=True)

    assert best([several, passing, staying, fetching]) is fetching


def test_what_no_criterion_sees_takes_its_middle_value() -> None:
    """Tunable by tunable the median, the lower of two; texts as the space lists them."""
    candidates = [
        built((8, 64, 32, 0), ring=ring, how=how)
        for ring in (32, 40, 48)
        for how in ("tree", "chain", "warp", "block")
    ]

    choice = choice_of(candidates, H200, ROLES)

    assert (choice.configuration["ring"], choice.configuration["how"]) == (40, "chain")
    assert "the rule cannot tell it apart; the one nearer to the middle is taken" in choice.reasons[-1]
    assert [one.candidate.configuration["ring"] for one in choice.shortlist.compared].count(40) == 4


@pytest.mark.parametrize(
    ("kernel", "least"),
    [
        *((kernel, 0.97) for kernel in ("scan-lf", "scan-ks", "fft")),
        *((f"tridiag-{kernel}", 0.97) for kernel in ("cr", "pcr", "lf", "wm")),
        ("fft-large", 0.93),
    ],
)
def test_phi_on_the_recorded_h200(kernel: str, least: float) -> None:
    """The harmonic mean over all recorded sizes of best time by time chosen, without one measurement."""
    recording = RecordingFile(RECORDED)
    inverse = []
    for names in recording.names:
        if len(names) == 1 and names[0].partition(":")[0] == kernel:
            space = recording.space(names)
            workload = space.workloads[0]
            choice = choice_of(workload.candidates, space.limits, workload.roles)
            times = {t.configurations[0]: m.makespan_s or math.inf for t, m in space.trials.items()}
            inverse.append(times[choice.configuration] / min(times.values()))
            assert choice.rule == "server"

    published = json.loads(RESULTS.read_text())["kernels"][kernel]["server"]["phi"]
    assert len(inverse) >= 7
    assert len(inverse) / sum(inverse) == pytest.approx(published)
    assert published >= least


def test_the_docs_show_what_was_published() -> None:
    """Each row of the table in docs/lab/methodologies.md is that of the results file."""
    kernels = json.loads(RESULTS.read_text())["kernels"]
    text = (ROOT / "docs" / "lab" / "methodologies.md").read_text()
    for kernel, rules in kernels.items():
        server = rules["server"]
        numbers = [rules["embedded"]["phi"], *(server[key] for key in ("phi", "phi_seen", "phi_others"))]
        numbers.append(min(server["efficiency"].values()))
        cells = " | ".join(f"{number:.3f}" for number in numbers)
        assert f"| `{kernel}` | {len(server['efficiency'])} | {cells} |" in text


# --- laws ----------------------------------------------------------------------------------------

shapes = st.tuples(
    st.sampled_from((2, 4, 8, 16, 32)),
    st.sampled_from((32, 64, 128, 256, 512, 1024)),
    st.integers(16, 128),
    st.integers(0, 48 * 1024),
)
spaces = st.lists(shapes, min_size=1, max_size=12, unique=True)
rules = st.sampled_from(("embedded", "server"))


def launchable(found: Sequence[Shape], limits: DeviceLimits) -> list[Candidate]:
    """The candidates that fit on the device."""
    candidates = [built(shape, limits=limits) for shape in found]
    return [one for one in candidates if one.blocks_per_sm]


@given(found=spaces, rule=rules)
def test_the_chosen_is_a_candidate_and_heads_the_table(found: Sequence[Shape], rule: str) -> None:
    """Nothing is invented, nothing lost: the table has every candidate once, the chosen one first."""
    candidates = launchable(found, TX1)
    if not candidates:
        return
    choice = choice_of(candidates, TX1, ROLES, rule=rule)

    listed = [one.candidate for one in choice.shortlist.compared]
    assert listed[0].configuration == choice.configuration
    assert sorted(map(id, listed)) == sorted(map(id, candidates))
    assert len(choice.reasons) == 3


@given(found=spaces, rule=rules, seed=st.randoms(use_true_random=False))
def test_the_order_of_candidates_decides_nothing_but_ties(
    found: Sequence[Shape], rule: str, seed: object
) -> None:
    """Shuffled candidates give the same choice: numbers are all there is to tell them apart."""
    candidates = launchable(found, TX1)
    if not candidates:
        return
    shuffled = list(candidates)
    seed.shuffle(shuffled)  # type: ignore[attr-defined]  # a random.Random, whose type hypothesis hides

    assert best(candidates, rule, TX1).configuration == best(shuffled, rule, TX1).configuration


@given(found=spaces)
def test_one_that_has_all_warps_and_all_blocks_is_never_passed_over(found: Sequence[Shape]) -> None:
    """First step of the guideline: with one radix, whoever reaches both maxima goes before who does not."""
    candidates = [*launchable(found, TX1), built((2, 64, 32, 0), limits=TX1)]

    chosen = choice_of(candidates, TX1, ROLES, rule="embedded").best

    assert (chosen.W_SM, chosen.B_a) == ((64,), (32,))


@given(found=spaces)
def test_enough_warps_with_more_blocks_are_never_passed_over(found: Sequence[Shape]) -> None:
    """Second step: among those with 60 % of the warps none has more active blocks than the chosen one."""
    candidates = launchable(found, TX1)
    if not candidates:
        return
    choice = choice_of(candidates, TX1, ROLES, rule="embedded")

    enough = [one for one in choice.shortlist.compared if one.warp_share >= 0.6]
    if enough:
        assert choice.best.B_a == max(one.B_a for one in enough)
    else:
        fullest = max(one.W_SM for one in choice.shortlist.compared)
        assert fullest == choice.best.W_SM


# --- missing and strange -------------------------------------------------------------------------


def told(search: Search) -> tuple[Search, list[str]]:
    """The search, and what its policy says."""
    said: list[str] = []
    return replace(search, tell=said.append), said


def constant(trial: Trial) -> Measurement:
    """Every trial the same cost."""
    return result(1.0, [1.0] * len(trial.configurations))


def test_the_policy_tries_one_trial_of_each_workloads_own_answer_at_the_highest_clock() -> None:
    """Two workloads, two clocks: one trial."""
    first, second = [built((4, 128, 32, 0)), built((16, 32, 32, 0))], [built((8, 64, 32, 0), name="b")]
    search, said = told(
        replace(search_over(first, second, clocks=(900, 800)), limits=H200, roles=(ROLES, ROLES))
    )

    played = play(analytical, search, constant)

    expected = Trial((first[1].configuration, second[0].configuration), 900)
    assert (played.trials, played.best) == ([expected], expected)
    assert said == [
        "analytical: the server rule chooses, because 132 multiprocessors are more than 20",
        "analytical: kernel0: P=16 L=32, else as the default",
        "analytical: kernel1: the default",
    ]


@pytest.mark.parametrize(
    ("limits", "candidates", "why"),
    [
        (None, [built((4, 128, 32, 0))], "the limits of the device are not known"),
        (H200, [unbuilt(L=64), unbuilt(L=128)], "the compiled resources of its candidates are not known"),
        (
            H200,
            [built((4, 128, 32, 0)), built((4, 128, 32, 0), stages=3)],
            "the rules do not know what its several launches do (no tunable has the role radix)",
        ),
    ],
)
def test_where_something_is_missing_the_default_is_tried_and_the_reason_told(
    limits: DeviceLimits | None, candidates: Sequence[Candidate], why: str
) -> None:
    """A space of another tuner has no launches, an application those of many kinds: the default, and why."""
    default = candidates[-1].configuration
    search, said = told(replace(search_over(candidates), limits=limits, defaults=(default,)))

    assert first_compiled(search) == []
    assert choose(candidates, limits, {}) is None
    assert play(analytical, search, constant).trials == [Trial((default,))]
    assert said == [f"analytical: kernel0: no analytical answer, because {why}; its default is taken"]


def test_a_kernel_file_can_say_that_its_default_is_the_better_guess() -> None:
    """Without roles to go by nothing is compiled, the default is tried, and the key is named."""
    candidates = [built((4, 128, 32, 0)), built((16, 32, 32, 0))]
    default = candidates[0].configuration
    search = replace(search_over(candidates), limits=H200, roles=(None,), defaults=(default,))
    search, said = told(search)

    assert first_compiled(search) == []
    assert choose(candidates, H200, None) is None
    assert play(analytical, search, constant).trials == [Trial((default,))]
    why = "its kernel file has analytical = false"
    assert said == [f"analytical: kernel0: no analytical answer, because {why}; its default is taken"]


def test_a_default_that_was_pruned_falls_back_to_the_first_candidate() -> None:
    """No trial outside of the space."""
    candidates = [unbuilt(L=64), unbuilt(L=128)]
    search = replace(search_over(candidates), defaults=(Configuration({"L": 512}),))

    assert play(analytical, search, constant).trials == [Trial((candidates[0].configuration,))]


@pytest.mark.parametrize(
    "roles", [{}, {"colour": "hue"}, {"radix": "no such tunable"}, {"radix": "how"}, {"radix": "on"}]
)
@pytest.mark.parametrize("rule", ["embedded", "server"])
def test_roles_that_help_nothing_break_nothing(roles: dict[str, str], rule: str) -> None:
    """Unknown roles, roles of missing tunables, texts and switches as radix: the other criteria remain."""
    candidates = [built((8, 64, 32, 0), how="tree", on=True), built((8, 512, 64, 0), how="chain", on=False)]

    assert choice_of(candidates, H200, roles, rule=rule).best.candidate is candidates[0]


def test_where_bytes_are_not_known_half_of_the_warps_are_enough() -> None:
    """More than that does not count, less does."""
    sparse, half, full = (built((8, 64, registers, 0), work=None) for registers in (128, 64, 32))

    assert best([full, half, sparse]) is not sparse
    assert best([half, sparse]) is half


@pytest.mark.parametrize("rule", ["embedded", "server"])
def test_unknown_work_leaves_the_other_criteria(rule: str) -> None:
    """Without a work formula nothing is known of bytes, and warps and blocks decide."""
    candidates = [built((8, 256, 128, 0), work=None), built((8, 64, 32, 0), work=None)]

    assert best(candidates, rule) is candidates[1]


def test_candidates_without_launches_are_left_out() -> None:
    """Among those with known resources the choice goes on."""
    known = built((8, 64, 32, 0))

    choice = choice_of([unbuilt(P=1, L=1), known], H200, ROLES)

    assert (choice.best.candidate, len(choice.shortlist.compared)) == (known, 1)
    assert choice.reasons[-1] == "there is no other candidate"


# --- front-runners -------------------------------------------------------------------------------

Fitting = tuple[Shape, int, bool]
"""A shape, its static shared memory in bytes, and whether compiling rules it out."""

fitting = st.lists(
    st.tuples(shapes, st.integers(0, 4096), st.booleans()),
    min_size=1,
    max_size=40,
    unique_by=lambda one: one[0],
)


def both_of(
    found: Sequence[Fitting], limits: DeviceLimits, *, resident: bool = False, stages: int = 1
) -> dict[Configuration, list[Candidate]]:
    """Every candidate as it is declared, and as it compiles unless that rules it out."""
    pairs = {}
    for (P, L, registers, shared_bytes), static_bytes, ruled_out in found:
        taken = built(
            (P, L, registers, shared_bytes + static_bytes), limits=limits, resident=resident, stages=stages
        )
        configuration = Configuration({**taken.configuration, "dynamic": shared_bytes})
        declared = replace(
            built((P, L, 0, shared_bytes), limits=limits, resident=resident, stages=stages),
            configuration=configuration,
        )
        compiled = replace(
            taken, configuration=configuration, resources=(Resources(registers, static_bytes),) * stages
        )
        fits = declared.blocks_per_sm and compiled.blocks_per_sm
        if fits:
            pairs[declared.configuration] = [
                replace(declared, declared=True),
                *([] if ruled_out else [compiled]),
            ]
    return pairs


@given(found=fitting, rule=rules, resident=st.booleans(), several=st.booleans())
def test_the_choice_is_that_of_all_compiled(
    found: Sequence[Fitting], rule: str, resident: bool, several: bool
) -> None:
    """Compiling the front-runners gives what compiling everything gives, ties too, and the rest is proved."""
    limits = TX1 if rule == "embedded" else H200
    pairs = both_of(found, limits, resident=resident)
    if several and pairs:
        pairs |= both_of([(((4, 64, 32, 64)), 0, True)], limits, stages=2)
    asked: list[Candidate] = []

    def resolve(some: Sequence[Candidate]) -> list[Candidate | None]:
        asked.extend(some)
        return [next(iter(pairs[one.configuration][1:]), None) for one in some]

    declared = [pair[0] for pair in pairs.values()]
    compiled = {pair[0].configuration: pair[1] for pair in pairs.values() if len(pair) > 1}
    choice = choose(declared, limits, ROLES, rule=rule, resolve=resolve)
    assert len(asked) == len({one.configuration for one in asked})
    if not compiled:
        assert choice is None
        return
    assert choice is not None
    contest = rating.Contest(declared, limits, ROLES, choice.criteria)
    expected = min(compiled.values(), key=lambda one: contest.rank(rating.rate(one, limits, ROLES)))
    assert choice.best.candidate is expected
    assert choice.shortlist.undecided == 0
    assert choice.shortlist.left_out == len(declared) - len(asked)


@given(found=fitting, rule=rules, resident=st.booleans())
def test_a_bound_is_a_bound(found: Sequence[Fitting], rule: str, resident: bool) -> None:
    """No criterion of any rule gets better by registers or static shared memory."""
    limits = TX1 if rule == "embedded" else H200
    pairs = both_of(found, limits, resident=resident)
    for several in (False, True):
        criteria = analytical_module.RULES[rule](rating.Facts(radix_varies=True, several_launches=several))
        contest = rating.Contest([pair[0] for pair in pairs.values()], limits, ROLES, criteria)
        for declared, *compiled in pairs.values():
            for one in compiled:
                bound, own = (contest.rank(rating.rate(c, limits, ROLES)) for c in (declared, one))
                assert bound <= own


def test_a_choice_among_too_many_says_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where as many are compiled as may be, the answer is the best of those, and the rest is counted."""
    monkeypatch.setattr(rating, "MOST", 8)
    found = [((8, 64, 128, shared), 0, False) for shared in range(0, 30 * 64, 64)]
    pairs = both_of(found, TX1)
    asked: list[Candidate] = []

    def resolve(some: Sequence[Candidate]) -> list[Candidate | None]:
        asked.extend(some)
        return [pairs[one.configuration][1] for one in some]

    monkeypatch.setattr(rating, "TOGETHER", 4)
    choice = choice_of([pair[0] for pair in pairs.values()], TX1, ROLES, rule="embedded", resolve=resolve)

    assert len(asked) == 8
    assert choice.shortlist.left_out == 22
    assert 0 < choice.shortlist.undecided <= 22
    assert f"{choice.shortlist.undecided} may be ahead by their bounds: left out" in choice.reasons[-1]
    assert choice.best.candidate in [pairs[one.configuration][1] for one in asked]


def test_bounds_alone_are_no_answer() -> None:
    """Without somebody to compile, candidates that are not compiled are left out."""
    pairs = both_of([((8, 64, 32, 0), 0, False), ((8, 128, 32, 0), 0, False)], H200)
    declared = [pair[0] for pair in pairs.values()]
    compiled = [pair[1] for pair in pairs.values()]

    assert choose(declared, H200, ROLES) is None
    assert choice_of([declared[0], compiled[1]], H200, ROLES).best.candidate is compiled[1]
    played = play(analytical, replace(search_over(declared), limits=H200), lambda _: result(1.0, [1.0]))
    assert [trial.configurations[0] for trial in played.trials] == [declared[1].configuration]


def test_an_answer_compiles_what_it_needs_and_says_so() -> None:
    """A policy resolves the candidates of its workload; what it did not need is proved, in a sentence."""
    found = [((P, L, 32, 0), 0, False) for P in (2, 4, 8, 16) for L in (32, 64, 128, 256, 512, 1024)]
    pairs = both_of(found, H200)
    asked: list[int] = []

    def resolve(place: int, some: Sequence[Candidate]) -> list[Candidate | None]:
        asked.extend([place] * len(some))
        return [pairs[one.configuration][1] for one in some]

    search = replace(
        search_over([pair[0] for pair in pairs.values()]), limits=H200, roles=(ROLES,), resolve=resolve
    )
    played = play(analytical, search, lambda _: result(1.0, [1.0]))
    choice = analytical_module.choice_of(search, 0)

    assert len(played.trials) == 1
    assert asked == [0] * 16
    assert "8 candidates were compiled and compared; the bounds of the 16 others prove" in choice.reasons[-1]
    assert analytical_module.first_compiled(search)[0].configurations == played.trials[0].configurations
