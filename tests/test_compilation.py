"""Compiling on demand: what is looked at, in which order, what that rules out, and how it ends."""

import os
import re
import select
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from cli_process import PATIENCE_S, await_rows, begun
from modelled import NoNvrtc

from tuner.database.runs import Store
from tuner.devices.simulated.device import SimulatedDevice
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.base import ComparisonTarget
from tuner.model.errors import CompileError, DeviceError, EmptySpaceError
from tuner.model.objective import Objective
from tuner.model.plan import Configuration, Plan, Progress, Resources, TunableValue
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.search.candidates import PreparedWorkload, prepare
from tuner.search.compilation import Compilation
from tuner.search.option_checks import LimitReachedError, SearchLimits
from tuner.search.plan import plan_search
from tuner.search.request import SearchRequest
from tuner.search.session import Session, TrialEvent
from tuner.search.setup import MeasurementSetup
from tuner.space.search_view import Policy, Search

Answer = tuple[Resources, ...] | CompileError
LEAN, FAT, SPILLING = Resources(16), Resources(80), Resources(16, spill_bytes=8)


class Workshop(SimulatedDevice):
    """A K40c that compiles as told, notes what it is asked for, and can be made to wait."""

    def __init__(self, answer: Callable[[Configuration], Resources | CompileError] = lambda _: LEAN) -> None:
        super().__init__("k40c", 0, NoNvrtc())
        self.answer = answer
        self.asked: list[Configuration] = []
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Semaphore(0)

    def resources(self, plans: Sequence[Plan], progress: Progress | None = None) -> list[Answer]:
        del progress
        self.asked += [plan.configuration for plan in plans]
        self.begun.release()
        assert self.open.wait(PATIENCE_S)
        found = [self.answer(plan.configuration) for plan in plans]
        return [one if isinstance(one, CompileError) else (one,) for one in found]


def prepared(gpu: SimulatedDevice, *specs: str) -> list[PreparedWorkload]:
    catalog = Catalog.load(search_path=None)
    workloads = [catalog.workload(spec) for spec in specs or ("scan-lf:N=64",)]
    return prepare([(catalog.kernel(workload.kernel), workload) for workload in workloads], gpu, 0.5)


def trials(items: Sequence[PreparedWorkload]) -> list[Trial]:
    """One trial for every candidate of the first workload."""
    others = tuple(item.default for item in items[1:])
    return [Trial((one.configuration, *others)) for one in items[0].candidates]


def join_threads() -> None:
    """Wait until no compilation has anything to do."""
    for thread in threading.enumerate():
        if thread.name == "compilation":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def fat_from(elements: int) -> Callable[[Configuration], Resources]:
    """So many elements per thread or more take too many registers."""
    return lambda configuration: FAT if int(configuration["P"]) >= elements else LEAN


# --- what compiling tells ------------------------------------------------------------------------


def test_what_is_resolved_is_compiled_and_nothing_else() -> None:
    """Candidates come back with their resources; the others stay declared, and are counted."""
    gpu = Workshop()
    items = prepared(gpu)
    some = items[0].candidates[3:6]
    compilation = Compilation(items, gpu)
    found = compilation.resolve(0, some)
    (known,) = compilation.known()

    assert sorted(map(str, gpu.asked)) == sorted(str(one.configuration) for one in some)
    assert [one and one.configuration for one in found] == [one.configuration for one in some]
    assert all(one is not None and one.resources == (LEAN,) and not one.declared for one in found)
    assert known.uncompiled == len(items[0].candidates) - 3
    assert [one.configuration for one in known.candidates] == [c.configuration for c in items[0].candidates]
    join_threads()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (FAT, "occupancy, of compiled resources"),
        (Resources(256), "cannot be launched (registers)"),
        (SPILLING, "spills registers"),
        (Resources(16, local_bytes=8), "uses local memory"),
        (CompileError("it is wrong"), "does not compile"),
    ],
)
def test_compiled_resources_rule_out(bad: Resources | CompileError, reason: str) -> None:
    """What does not compile, cannot be launched, spills or does not fill the device is counted once."""
    gpu = Workshop(lambda configuration: bad if configuration["P"] == 4 else LEAN)
    items = prepared(gpu)
    compilation = Compilation(items, gpu)
    for _ in range(2):
        found = compilation.resolve(0, items[0].candidates)
    (known,) = compilation.known()
    count = sum(one.configuration["P"] == 4 for one in items[0].candidates)

    assert [one is None for one in found] == [one.configuration["P"] == 4 for one in items[0].candidates]
    assert known.pruned[reason] == count
    assert len(known.candidates) == len(items[0].candidates) - count
    assert known.compile_errors == (("it is wrong",) * count if isinstance(bad, CompileError) else ())
    assert len(known.spilling) == (count if reason in ("spills registers", "uses local memory") else 0)
    assert len(gpu.asked) == len(items[0].candidates), "nothing is compiled twice"
    default = next(one.configuration for one in items[0].candidates if one.configuration["P"] == 4)
    (known,) = compilation.known([Trial((default,))])
    assert known.pruned.get(reason, 0) == count - 1, "what was measured all the same is none of them"
    join_threads()


def test_what_is_known_does_not_depend_on_what_is_compiled_ahead() -> None:
    """Compiling ahead changes no count and no candidate that a policy or a report sees."""
    gpu = Workshop(fat_from(8))
    items = prepared(gpu)
    compilation = Compilation(items, gpu)
    compilation.expect(trials(items))
    join_threads()

    assert len(gpu.asked) == len(items[0].candidates)
    assert compilation.known() == items
    assert compilation.resolve_all()[0].uncompiled == 0
    assert len(gpu.asked) == len(items[0].plans)


def test_a_search_begins_with_the_defaults_alone() -> None:
    """Where every default is a candidate, nothing else is compiled to begin with."""
    gpu = Workshop()
    items = prepared(gpu, "scan-lf:N=64", "fft:N=64")

    assert Compilation(items, gpu).begin(SearchLimits()) == items
    assert sorted(map(str, gpu.asked)) == sorted(str(item.default) for item in items)
    join_threads()


def test_what_spills_is_tried_where_nothing_else_is_left() -> None:
    """Configurations that spill stay candidates where all others are ruled out, and only there."""
    gpu = Workshop(lambda configuration: SPILLING if configuration["P"] in (4, 8) else FAT)
    (item,) = prepared(gpu)
    compilation = Compilation([item], gpu)
    (begun,) = compilation.begin(SearchLimits())

    assert compilation.all_spilling == [item.workload]
    assert {one.configuration["P"] for one in begun.candidates} == {4, 8}
    (known,) = compilation.known()
    assert known.spilling >= {one.configuration for one in begun.candidates}

    compilation = Compilation([item], Workshop(lambda _: SPILLING))
    (begun,) = compilation.begin(SearchLimits())
    assert len(begun.candidates) == len(item.candidates)

    compilation = Compilation([item], Workshop(lambda _: FAT))
    with pytest.raises(EmptySpaceError):
        compilation.begin(SearchLimits())
    join_threads()


def test_a_default_that_is_ruled_out_is_no_candidate() -> None:
    """A policy never sees it, and some other candidate is known to be left."""
    gpu = Workshop()
    (item,) = prepared(gpu)
    gpu.answer = lambda configuration: FAT if configuration == item.default else LEAN
    compilation = Compilation([item], gpu)
    (begun,) = compilation.begin(SearchLimits())

    assert {one.configuration for one in item.candidates} - {
        one.configuration for one in begun.candidates
    } == {item.default}
    assert all(one.declared for one in begun.candidates)
    assert any(not one.declared for one in compilation.known()[0].candidates)
    join_threads()


def test_a_space_of_which_nothing_is_left_is_an_error() -> None:
    """The message says how many were ruled out by what, with the first error."""
    gpu = Workshop(lambda configuration: CompileError(f"it is wrong: {configuration}"))
    with pytest.raises(
        EmptySpaceError, match=r"none of .* is left .*does not compile.*first error: it is wrong"
    ):
        Compilation(prepared(gpu), gpu).begin(SearchLimits())
    gpu.answer = lambda _: FAT
    with pytest.raises(EmptySpaceError, match=r"no configuration reaches .*: lower --min-occupancy"):
        Compilation(prepared(gpu), gpu).begin(SearchLimits())
    join_threads()


@pytest.mark.parametrize(
    ("stage", "error"),
    [("stage 1", 'a.cu(3): error: expected a ";"'), ("stage 's', k<{L}> of a/k.cu", "build: cc is missing")],
)
def test_one_error_everywhere_ends_a_search_early(stage: str, error: str) -> None:
    """Where the default and many others fail with one error, the rest is not compiled to say so."""
    gpu = Workshop(lambda c: CompileError(f"scan [{c}]: {stage.format(L=c['L'])}: {error}"))
    items = prepared(gpu, "scan-lf:N=8192")
    assert len(items[0].plans) > 50
    with pytest.raises(EmptySpaceError, match=f"fail to compile with one error.*: {re.escape(error)}"):
        Compilation(items, gpu).begin(SearchLimits())
    assert len(gpu.asked) <= 57
    join_threads()


def test_errors_that_differ_end_no_search() -> None:
    """A candidate is found where some fail in other ways than the default."""
    gpu = Workshop()
    (item,) = prepared(gpu, "scan-lf:N=8192")
    last = item.candidates[-1].configuration
    gpu.answer = lambda c: LEAN if c == last else CompileError(f"a.cu({c['L']}): error: no room for {c['P']}")
    (begun,) = Compilation([item], gpu).begin(SearchLimits())
    assert last in {one.configuration for one in begun.candidates}
    join_threads()


@pytest.mark.parametrize("name", ["P", "L", "S", "shuffle", "store", "blocks", "cap"])
def test_an_error_of_one_tunable_ends_no_search(name: str) -> None:
    """Each value of a tunable is tried before one error is taken for that of all, wherever it varies."""
    gpu = Workshop()
    (item,) = prepared(gpu, "scan-lf:N=8192")

    def answered(wanted: TunableValue, given: Configuration) -> Resources | CompileError:
        return LEAN if given[name] == wanted else CompileError("a.cu(3): error: assertion")

    for value in {one.configuration[name] for one in item.candidates} - {item.default[name]}:
        gpu.answer = partial(answered, value)
        (begun,) = Compilation([item], gpu).begin(SearchLimits())
        assert value in {one.configuration[name] for one in begun.candidates}
    join_threads()


def test_no_verdict_is_waited_for_behind_the_time_limit() -> None:
    """A search that is out of time waits for no compiler; what it waited for was not looked at."""
    gpu = Workshop()
    (item,) = prepared(gpu)
    over = SearchLimits(time_limit_s=1.0, begun_s=time.monotonic() - 2.0)
    compilation = Compilation([item], gpu)
    compilation.begin(over)  # the default is compiled whatever it takes
    gpu.open.clear()
    others = [one for one in item.candidates if one.configuration != item.default]
    with compilation.within(over), pytest.raises(LimitReachedError, match="time limit of 1 s is reached"):
        compilation.resolve(0, others)
    assert compilation.known()[0].uncompiled == len(item.plans) - 1
    gpu.open.set()
    assert all(compilation.resolve(0, others))
    join_threads()


def test_progress_is_told_in_the_thread_that_waits() -> None:
    """The numbers rise to what was asked for so far, with what was compiled ahead."""
    gpu = Workshop()
    items = prepared(gpu)
    told: list[tuple[int, int, str]] = []
    name = threading.current_thread().name
    compilation = Compilation(
        items, gpu, progress=lambda done, total: told.append((done, total, threading.current_thread().name))
    )
    compilation.resolve(0, items[0].candidates[:3])
    compilation.resolve(0, items[0].candidates[3:5])
    compilation.expect(trials(items)[5:6])
    join_threads()
    compilation.resolve(0, items[0].candidates[:6])

    assert {thread for _, _, thread in told} == {name}
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    assert [pair for *pair, _ in told if pair[0] == pair[1]] == [[3, 3], [5, 5], [6, 6]]
    join_threads()


# --- in which order ------------------------------------------------------------------------------


def test_what_is_waited_for_goes_before_the_next_trials_and_these_before_what_is_expected() -> None:
    """One thread, held up in its first compilation, takes the rest in the order of their need."""
    gpu = Workshop()
    items = prepared(gpu)
    asked = trials(items)
    compilation = Compilation(items, gpu, jobs=1)
    gpu.open.clear()
    compilation.expect(asked[:1])
    assert gpu.begun.acquire(timeout=PATIENCE_S)
    compilation.expect(asked[7:9])
    compilation.ahead(asked[5:6])
    waiter = threading.Thread(target=compilation.resolve, args=(0, items[0].candidates[2:4]))
    waiter.start()
    while len(compilation._wanted) < 2:
        waiter.join(0.001)
    gpu.open.set()
    waiter.join(PATIENCE_S)
    join_threads()

    order = [items[0].candidates[i].configuration for i in (0, 2, 3, 5, 7, 8)]
    assert gpu.asked == order


def test_a_new_expectation_replaces_the_old_one() -> None:
    """What was announced before, and not begun, is not compiled."""
    gpu = Workshop()
    items = prepared(gpu)
    asked = trials(items)
    compilation = Compilation(items, gpu, jobs=1)
    gpu.open.clear()
    compilation.expect(asked[:5])
    assert gpu.begun.acquire(timeout=PATIENCE_S)
    compilation.expect(asked[5:7])
    gpu.open.set()
    join_threads()

    assert gpu.asked == [items[0].candidates[i].configuration for i in (0, 5, 6)]


def test_two_who_wait_for_the_same_have_it_compiled_once() -> None:
    """What is under way is waited for, by whomever."""
    gpu = Workshop()
    items = prepared(gpu)
    compilation = Compilation(items, gpu, jobs=4)
    waiters = [
        threading.Thread(target=compilation.resolve, args=(0, items[0].candidates[:6])) for _ in range(3)
    ]
    for waiter in waiters:
        waiter.start()
    for waiter in waiters:
        waiter.join(PATIENCE_S)
    join_threads()

    assert len(gpu.asked) == 6


# --- how it ends ---------------------------------------------------------------------------------


def test_trouble_is_raised_where_somebody_asks_and_another_try_is_made() -> None:
    """Ahead, it is nobody's; asked for, it is raised; asked again, it is compiled."""
    gpu = Workshop()
    items = prepared(gpu)
    one = items[0].candidates[:1]

    def lost(_: Configuration) -> Resources:
        raise DeviceError("the device is lost")

    gpu.answer = lost
    compilation = Compilation(items, gpu)
    compilation.expect(trials(items)[:1])
    join_threads()
    with pytest.raises(DeviceError, match="lost"):
        compilation.resolve(0, one)
    gpu.answer = lambda _: LEAN
    assert compilation.resolve(0, one) != [None]
    join_threads()


def test_a_closed_compilation_begins_nothing_more() -> None:
    """What waits is told, what is expected is dropped."""
    gpu = Workshop()
    items = prepared(gpu)
    compilation = Compilation(items, gpu, jobs=1)
    gpu.open.clear()
    compilation.expect(trials(items))
    assert gpu.begun.acquire(timeout=PATIENCE_S)
    compilation.close()
    gpu.open.set()
    join_threads()
    compilation.expect(trials(items))
    with pytest.raises(DeviceError, match="nothing is compiled any more"):
        compilation.resolve(0, items[0].candidates[-1:])

    assert len(gpu.asked) == 1


def test_an_interrupt_while_waiting_leaves_nothing_wanted() -> None:
    """Ctrl-C comes out of the wait; what was asked for is begun no more."""
    gpu = Workshop()
    items = prepared(gpu)

    def one_only(_: Configuration) -> Resources:
        gpu.open.clear()
        return LEAN

    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    gpu.answer = one_only
    compilation = Compilation(items, gpu, jobs=1, progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        compilation.resolve(0, items[0].candidates)
    gpu.open.set()
    join_threads()

    assert len(gpu.asked) <= 2, "the one that was under way ended"


def processes_of(marker: str) -> list[int]:
    """Living processes that have a text in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            told = (folder / "environ").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if marker.encode() in told and state != "Z":
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_no_compiler_outlives_a_run_that_is_stopped_while_it_compiles_ahead(
    sent: signal.Signals, status: int, tmp_path: Path
) -> None:
    """A sweep compiles the next trials while one is measured; Ctrl-C and a kill end its children too."""
    database = tmp_path / "tuner.db"
    words = ["run", "scan-lf:N=1024", "--device", "sim:h200", "--policy", "exhaustive"]
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    process = begun(*words, "--database", database, environment=os.environ | cache)
    await_rows(process, database, 2)
    with ExitStack() as stack:
        ends = select.poll()
        compiling = [pid for pid in processes_of(str(tmp_path / "cache")) if pid != process.pid]
        for pid in compiling:
            opened = os.pidfd_open(pid)
            stack.callback(os.close, opened)
            ends.register(opened, select.POLLIN)
        process.send_signal(sent)
        process.communicate(timeout=PATIENCE_S)
        for _ in compiling:
            ((ended, _),) = ends.poll(1000 * PATIENCE_S)[:1]
            ends.unregister(ended)

    assert compiling, "nothing was compiled ahead"
    assert processes_of(str(tmp_path / "cache")) == []
    assert process.returncode == status


# --- in a search ---------------------------------------------------------------------------------


@dataclass
class Bench:
    """A measurer and a listener that note what they get."""

    windows_s: float = 0.0
    notices: tuple[str, ...] = ()
    measured_: list[Trial] = field(default_factory=list)
    told_: list[Trial] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)

    def measure(self, trial: Trial, plans: Sequence[Plan], _target: ComparisonTarget) -> Measurement:
        self.measured_.append(trial)
        return Measurement(tuple(WorkloadResult(Status.OK, 1.0) for _ in plans), 1.0)

    def spent(self) -> None:
        """Nobody tells."""

    def compiled(self, done: int, total: int) -> None:
        """Not of interest."""

    def measured(self, event: TrialEvent) -> None:
        self.told_.append(event.trial)

    def told(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def searched(
        self, gpu: SimulatedDevice, policy: Policy, database: Path, *specs: str, budget: int
    ) -> list[Trial]:
        """The trials that a search by a policy has stored."""
        request = SearchRequest(specs, objective="time", min_occupancy=0.5, budget=budget)
        setup = MeasurementSetup(gpu, self, None, "", None, 1.0, ())  # type: ignore[arg-type]  # as much of a measurer as a search without contenders needs
        plan = plan_search(request, Catalog.load(search_path=None), setup).following("test", {}, policy)
        with Store(database) as store:
            outcome = Session(plan, setup, store, self).run(confirm=False)
            stored = [trial for trial, _ in store.trials(outcome.run or 0, plan.conditions.names)]
        assert stored == [trial for trial, _ in outcome.trials]
        return [trial for trial, _ in outcome.trials]


def test_a_trial_that_is_ruled_out_is_answered_and_costs_nothing(tmp_path: Path) -> None:
    """It is measured by nobody, stored nowhere, told to nobody, and takes nothing of the budget."""
    gpu, bench = Workshop(fat_from(16)), Bench()
    items = prepared(gpu)
    answers: list[Measurement] = []

    def policy(_: Search) -> Generator[list[Trial], list[Measurement], None]:
        answers.extend((yield trials(items)))

    default = Trial((items[0].default,))
    lean = [trial for trial in trials(items) if int(trial.configurations[0]["P"]) < 16]
    stored = bench.searched(gpu, policy, tmp_path / "db", "scan-lf:N=64", budget=len(lean) + 1)
    fat = [answer for answer in answers if answer.status is Status.PRUNED]

    assert stored == bench.measured_ == bench.told_ == [default, *(one for one in lean if one != default)]
    assert len(fat) == len(items[0].candidates) - len(lean) > 0
    assert {answer.results[0].detail for answer in fat} == {"occupancy, of compiled resources"}
    assert all(Objective("time").cost(answer) == float("inf") for answer in fat)
    join_threads()


def test_the_default_trial_is_measured_whatever_it_takes(tmp_path: Path) -> None:
    """Gains are stated against it; beside others its configuration is ruled out like any."""
    gpu, bench = Workshop(), Bench()
    specs = ("scan-lf:N=64", "fft:N=64")
    items = prepared(gpu, *specs)
    gpu.answer = lambda configuration: FAT if configuration == items[0].default else LEAN
    default = Trial(tuple(item.default for item in items))
    other = Trial((items[0].default, items[1].candidates[0].configuration))
    answers: list[Measurement] = []

    def policy(_: Search) -> Generator[list[Trial], list[Measurement], None]:
        answers.extend((yield [default, other]))

    assert bench.searched(gpu, policy, tmp_path / "db", *specs, budget=9) == [default]
    assert answers[0].ok
    assert [result.status for result in answers[1].results] == [Status.PRUNED, Status.OK]
    assert bench.measured_ == [default]
    join_threads()


def test_a_search_of_what_spills_says_so(tmp_path: Path) -> None:
    """Where all spill the run measures them, and tells it once."""
    gpu, bench = Workshop(lambda _: SPILLING), Bench()
    every = trials(prepared(gpu))

    def policy(_: Search) -> Generator[list[Trial], list[Measurement], None]:
        yield every

    assert set(bench.searched(gpu, policy, tmp_path / "db", "scan-lf:N=64", budget=99)) == set(every)
    (sentence,) = [one for one in bench.sentences if "spills" in one]
    assert sentence.startswith("scan-lf:N=64: every configuration spills registers or uses local memory")
    join_threads()


def test_no_more_is_compiled_ahead_than_the_budget_allows(tmp_path: Path) -> None:
    """Short runs would begin children of the compiler each time, and end them before they are done."""
    gpu, bench = Workshop(), Bench()
    items = prepared(gpu)

    def policy(search: Search) -> Generator[list[Trial], list[Measurement], None]:
        search.expect(trials(items)[::-1])
        yield trials(items)

    stored = bench.searched(gpu, policy, tmp_path / "db", "scan-lf:N=64", budget=3)
    join_threads()

    expected = [trials(items)[::-1][place] for place in range(2)]
    assert {Trial((one,)) for one in gpu.asked} <= {*stored, *expected}
    assert len(stored) == 3 < len(items[0].candidates)
