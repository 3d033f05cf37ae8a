"""``tuner.energy``: blocks, windows, decorators, threads, tasks, several GPUs, the host."""

import asyncio
import contextvars
import inspect
import math
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_process import PATIENCE_S, begun
from fake_nvml_state import SECOND_UUID, UUID, State, fake_nvml, lose, script, sensors_of_h200, users
from powercap_trees import build, played
from tuner.power.sensors import powercap

import tuner
from tuner.devices.gpu_models import gpu_model
from tuner.devices.simulated.time_model import load_watts
from tuner.joules import Region, RegionEnergy
from tuner.joules import recording as process
from tuner.model.errors import InputError, PowerError, SensorUnavailableError, UnknownNameError

SIM = "sim:h200"
RING_S = 0.02
H200 = gpu_model("h200")
LOAD_W = load_watts(H200, H200.clocks_mhz[0])
HOST_W = {"package-0": 80.0, "package-1": 60.0, "dram": 12.0}


@pytest.fixture(autouse=True)
def own_sources(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Recordings that end with the test."""
    registry = process.SourceRegistry()
    monkeypatch.setattr(process, "REGISTRY", registry)
    yield
    registry.close()


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    """Two GPUs in real time, at 400 and 200 W."""
    with fake_nvml(tmp_path) as state:
        state.gpu_count = 2
        for gpu, watts in ((state.first, 400.0), (state.second, 200.0)):
            script(gpu, (0.0, watts))
            sensors_of_h200(gpu)
        yield state
        process.REGISTRY.close()
        assert users() == 0


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host of two packages with DRAM: 164 W."""
    sysfs = build(tmp_path / "sys", packages=2)
    monkeypatch.setattr(powercap, "ROOT", str(sysfs))
    monkeypatch.setattr(powercap, "SysfsAttribute", played(HOST_W, time.monotonic))
    return sysfs


def spend(seconds: float = 0.02) -> None:
    """Let real time pass, as a kernel would."""
    threading.Event().wait(seconds)


def end_of(region: Region) -> float:
    assert region._end_s is not None
    return region._end_s


def covers(energy: RegionEnergy, watts: float) -> bool:
    """True where the interval, and a little, holds the energy of a steady power."""
    return abs(energy.joules - watts * energy.seconds) <= 3.0 * energy.uncertainty_j


def test_a_block_has_joules_power_and_a_label() -> None:
    """Energy, mean and peak are those of the simulated GPU's load, and are labelled modelled."""
    with tuner.energy(device=SIM) as region:
        assert not region.ended
        with pytest.raises(InputError, match="has not ended"):
            _ = region.joules
        assert "not ended" in str(region)
        spend(0.3)
    energy = region.result()

    assert region.ready
    assert covers(energy, LOAD_W)
    assert energy.seconds == region.seconds == pytest.approx(0.3, abs=0.25)
    assert region.joules == energy.joules == pytest.approx(energy.mean_w * energy.seconds)
    assert region.uncertainty_j == energy.uncertainty_j < 0.2 * energy.joules
    assert region.mean_w == energy.mean_w
    assert energy.mean_uncertainty_w == pytest.approx(energy.uncertainty_j / energy.seconds)
    assert region.peak_w == pytest.approx(LOAD_W, rel=0.05)
    assert (region.peak_w or 0.0) >= region.mean_w
    assert energy.modelled
    assert energy.synchronized
    assert "(modelled)" in str(region)
    assert " ± " in str(region)
    (part,) = region.parts
    assert (part.device, part.scope, part.sensor) == (SIM, "gpu", "simulated-counter+simulated-ring")
    assert region.notes == ()


def test_regions_may_be_nested_and_entered_again() -> None:
    """An inner region is part of the outer one, also of the same meter."""
    meter = tuner.energy(device=SIM)
    with meter as outer:
        spend()
        with meter as inner:
            spend(0.1)
    assert 0 < inner.seconds < outer.seconds
    assert covers(inner.result(), LOAD_W)
    assert covers(outer.result(), LOAD_W)


def test_threads_and_tasks_have_regions_of_their_own() -> None:
    """One meter serves threads and tasks that overlap in any order."""
    meter, ended = tuner.energy(device=SIM), dict[str, Region]()
    both, first_left = threading.Barrier(2), threading.Event()

    def work(name: str) -> None:
        with meter as region:
            both.wait(60)
            if name == "second":
                assert first_left.wait(60)
        ended[name] = region
        first_left.set()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended["first"] is not ended["second"]
    assert end_of(ended["first"]) < end_of(ended["second"])

    async def task(opened: asyncio.Event, wait: asyncio.Event) -> Region:
        with meter as region:
            opened.set()
            await wait.wait()
        return region

    async def crossed() -> tuple[Region, Region]:
        one, other, done = asyncio.Event(), asyncio.Event(), asyncio.Event()
        early = asyncio.create_task(task(one, other))
        await one.wait()
        late = asyncio.create_task(task(other, done))
        first = await early
        assert not late.done()
        done.set()
        return first, await late

    first, second = asyncio.run(crossed())
    assert first._start_s < second._start_s < end_of(first) < end_of(second)


def test_decorated_functions_keep_their_regions() -> None:
    """Each call is a region with the function's name; results and errors pass through."""

    @tuner.energy(device=SIM)
    def halved(number: int) -> float:
        """Half."""
        return 1.0 / number

    assert halved(2) == 0.5
    with pytest.raises(ZeroDivisionError):
        halved(0)
    assert halved.__doc__ == "Half."
    regions: Any = halved.regions  # type: ignore[attr-defined]  # set by the decorator
    assert [region.ended for region in regions] == [True, True]
    assert regions[0].name.endswith("halved")
    short = regions[0].seconds < RING_S  # unless the machine is busy
    assert any(note.startswith("too-short") for note in regions[0].notes) == short

    @tuner.energy(device=SIM)
    async def waited() -> str:
        await asyncio.sleep(0)
        return "done"

    assert asyncio.run(waited()) == "done"
    assert len(waited.regions) == 1  # type: ignore[attr-defined]  # set by the decorator
    with pytest.raises(InputError, match="generator"):

        @tuner.energy(device=SIM)
        def counted() -> Iterator[int]:
            yield 1


def test_windows_have_names() -> None:
    """A window is begun and ended by name, by any thread; names that are open, or are not, are told."""
    meter = tuner.energy(device=SIM)
    begun = meter.begin("epoch")
    with pytest.raises(InputError, match=r"begin\('epoch'\): the window is open already"):
        meter.begin("epoch")
    meter.begin("step")
    thread = threading.Thread(target=meter.end, args=("step",))
    thread.start()
    thread.join()
    with pytest.raises(UnknownNameError, match=r"end\('epok'\).*open are 'epoch'; did you mean 'epoch'"):
        meter.end("epok")
    region = meter.end("epoch")
    assert region is begun
    assert str(region).startswith("epoch: ")


def test_windows_are_cancelled_and_begun_anew() -> None:
    """One that is forgotten has no energy; what is not open is told, also the second time."""
    meter = tuner.energy(device=SIM)
    first = meter.begin("step")
    spend(0.05)
    second = meter.restart("step")
    meter.begin("other")
    meter.cancel("other")
    assert meter.end("step") is second
    assert second.seconds < first.seconds
    assert first.cancelled
    assert "cancelled" in repr(first)
    with pytest.raises(InputError, match="step was cancelled: it has no energy"):
        first.result()
    for method, words in ((meter.cancel, "cancel"), (meter.restart, "restart"), (meter.end, "end")):
        with pytest.raises(
            UnknownNameError, match=rf"{words}\('other'\): no such window is open; open are none"
        ):
            method("other")
    for region, words in ((first, "was cancelled before"), (second, "has ended")):
        with pytest.raises(InputError, match=f"step {words}: only an open region is cancelled"):
            region.cancel()


def test_a_block_may_cancel_itself() -> None:
    """It goes on, and no decorated function and no log has it."""
    told: list[RegionEnergy] = []
    meter = tuner.energy(device=SIM, log=told.append)

    @meter
    def warm_up() -> None:
        with meter as inner:
            inner.cancel()

    warm_up()
    meter("start")(spend)()
    meter.flush()
    assert [energy.name[-7:] for energy in told] == ["warm_up", "start"]


def test_requests_have_regions_in_any_context() -> None:
    """A block with a name of its own may be left in another context than it was entered in, in any order."""
    meter = tuner.energy(device=SIM)

    def request(block: tuner.joules.EnergyMeter) -> Iterator[Region]:
        with block as region:
            yield region

    def entered(block: tuner.joules.EnergyMeter) -> tuple[Iterator[Region], Region]:
        held = request(block)
        return held, contextvars.copy_context().run(next, held)

    def left(held: Iterator[Region]) -> None:
        assert contextvars.copy_context().run(next, held, None) is None

    (one, first), (other, second) = entered(meter("request")), entered(meter("request"))
    left(one)
    left(other)
    assert first.name == second.name == "request"
    assert first._start_s < second._start_s < end_of(first) < end_of(second)

    alone, third = entered(meter)
    left(alone)
    assert third.ended
    (one, first), (other, second) = entered(meter), entered(meter)
    for held in (one, other):
        with pytest.raises(
            InputError, match=r"2 are open: write `with meter\('a name'\) as region` for each"
        ):
            left(held)
    assert not first.ended
    assert not second.ended

    async def handled(number: int) -> Region:
        with meter("request") as region:
            load = meter("load")
            inner = await asyncio.to_thread(load.__enter__)
            await asyncio.sleep(0)
            await asyncio.to_thread(load.__exit__, None, None, None)
            region.count = number
        assert inner.ended
        return region

    async def served() -> list[Region]:
        return await asyncio.gather(*(handled(number) for number in range(1, 4)))

    assert [region.count for region in asyncio.run(served())] == [1, 2, 3]


def test_a_count_tells_what_each_costs() -> None:
    """Joules for each step, call or token; only a number above 0 that is told in time is a count."""
    meter = tuner.energy(device=SIM)
    with meter("epoch") as region:
        for wrong in ("3", 0, -1, math.nan, math.inf, True, None):
            with pytest.raises(InputError, match="write a number above 0"):
                region.count = wrong  # type: ignore[assignment]  # what a user may do
        region.count = 4
        spend(0.1)
    with pytest.raises(InputError, match="before epoch ends"):
        region.count = 5
    energy = region.result()
    assert energy.each_j == pytest.approx(energy.joules / 4)
    assert str(energy).splitlines()[1].endswith(" J for each of 4")
    with meter as uncounted:
        spend()
    assert uncounted.result().each_j is None


def test_joules_are_worth_what_is_stated() -> None:
    """Carbon or money of a kilowatt-hour is a number; the uncertainty is that of the joules."""
    with tuner.energy(device=SIM) as region:
        spend(0.1)
    energy = region.result()
    grams, sigma = energy.cost(360.0)
    assert grams == pytest.approx(energy.joules / 1e4)
    assert sigma == pytest.approx(energy.uncertainty_j / 1e4)
    assert energy.cost(-360) == pytest.approx((-grams, sigma))
    for wrong in ("380", None, math.nan, math.inf, True, 1j):
        with pytest.raises(InputError, match=r"write a number per kWh"):
            energy.cost(wrong)  # type: ignore[arg-type]  # what a user may do


def test_power_over_time_is_a_part_of_a_region() -> None:
    """From the region's begin to its end, at the simulated GPU's load."""
    with tuner.energy(device=SIM) as warm:
        spend(0.05)
        with tuner.energy(device=SIM) as region:
            spend(0.3)
        spend(0.05)
    (part,) = region.parts
    assert warm.ended
    assert len(part.times_s) == len(part.watts) + 1
    assert (part.times_s[0], part.times_s[-1]) == pytest.approx((0.0, region.seconds))
    assert part.watts.mean() == pytest.approx(LOAD_W, rel=0.1)


def test_a_region_in_a_list_is_readable() -> None:
    """Its ``repr`` waits for no sensor and tells the energy once it is known."""
    with tuner.energy(device=SIM) as region:
        assert repr(region) == "<Region, open>"
        time.sleep(0.02)
    assert re.fullmatch(r"<Region, ended after [\d.]+ m?s>", repr(region))
    region.result()
    assert re.fullmatch(r"<Region: [\d.]+ ± [\d.]+ J, mean .* W \(modelled\)>", repr(region))


def test_only_functions_are_decorated() -> None:
    """What cannot be called is refused where it is decorated, not where it is called."""
    with pytest.raises(InputError, match="3 is no function"):
        tuner.energy(device=SIM)(3)  # type: ignore[call-overload]  # what a user may do


def test_a_region_ends_with_an_error_too() -> None:
    """The error of the block passes through."""
    regions = []

    def fail() -> None:
        with tuner.energy(device=SIM) as region:
            regions.append(region)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert regions[0].ended
    assert regions[0].notes[-1] == "failed: it ended with ZeroDivisionError"


def test_a_function_is_called_until_power_is_flat() -> None:
    """The region holds flat power and counts its calls; nothing goes on behind it."""
    meter = tuner.energy(device=SIM)
    region = meter.steady(spend, seconds=0.5, limit_s=PATIENCE_S)
    assert region.name == "spend"
    assert region.count is not None
    assert region.count >= 1
    assert region.seconds >= 0.5
    assert not any(note.startswith("not-flat") for note in region.notes)
    assert covers(region.result(), LOAD_W)

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        meter.steady(fail)
    assert all(not source.recording._open for source in meter._sources)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"function": 3}, r"^steady\(3\): give a function"),
        ({"function": asyncio.sleep}, "no coroutine function"),
        ({"seconds": 0}, "^seconds=0, limit_s=120.0: write seconds above 0"),
        ({"seconds": "1"}, "^seconds='1'"),
        ({"seconds": 9, "limit_s": 5}, "a limit of as many"),
        ({"limit_s": math.nan}, "limit_s=nan"),
    ],
)
def test_what_cannot_be_repeated_is_told(arguments: dict[str, Any], words: str) -> None:
    """Before anything is called."""
    with pytest.raises(InputError, match=words):
        tuner.energy(device=SIM).steady(**{"function": spend, **arguments})


@pytest.mark.parametrize("what", ["power", "temperature"])
def test_what_is_not_flat_is_told(what: str, nvml: State) -> None:
    """Where power rises to the end, or the GPU warms, a note says so, and nobody waits for longer."""
    meter = tuner.energy(device=UUID, synchronize=False)
    if what == "power":
        now_s = time.monotonic()
        script(nvml.first, (0.0, 200.0), *((now_s + i / 10.0, 200.0 + i) for i in range(1000)))

    def work() -> None:
        spend()
        nvml.first.temperature_c += 2 * (what == "temperature")

    region = meter.steady(work, seconds=0.5, limit_s=0.5)
    assert [note.split()[:2] for note in region.notes if note.startswith("not-flat")] == [
        ["not-flat:", "power" if what == "power" else "a"]
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"scope": "npu"}, "^scope=npu: "),
        ({"scope": "gpu+cpu"}, "sim:h200 is simulated and has no host"),
        ({"scope": len}, r"@tuner.energy\(\)"),
        ({"device": "sim:h2000"}, "h2000"),
        ({"device": "gpu7"}, "^device=gpu7: "),
        ({"device": []}, "at least one GPU"),
        ({"device": "sim:gtx580"}, "no power sensor"),
        ({"sensor": "nvml"}, "choose from simulated-counter"),
        ({"scope": ""}, "^scope='': '' is none of gpu"),
        ({"device": "replay:h200"}, "or sim:NAME of a simulated GPU"),
        ({"synchronize": 3}, "^synchronize=3: give True, False, a stream"),
    ],
)
def test_what_is_not_there_is_told(arguments: dict[str, Any], words: str) -> None:
    """Before anything is measured."""
    with pytest.raises(InputError, match=words):
        tuner.energy(**{"device": SIM, **arguments})


@pytest.mark.usefixtures("nvml")
def test_several_gpus_and_their_host(host: Path) -> None:
    """Every GPU, the packages and the DRAM have parts of their own; joules add up, peaks do not."""
    assert host.exists()
    meter = tuner.energy("gpu+cpu", device=[UUID, SECOND_UUID], synchronize=False)
    with meter as warm:
        spend(0.15)
    with meter as region:
        spend(0.25)
    energy = region.result()

    assert [(part.device, part.scope) for part in energy.parts] == [
        (UUID, "gpu"),
        (SECOND_UUID, "gpu"),
        ("host", "package"),
        ("host", "dram"),
    ]
    for part, watts in zip(energy.parts, (400.0, 200.0, 140.0, 24.0), strict=True):
        assert abs(part.mean_w - watts) <= 3.0 * part.mean_uncertainty_w + 0.01 * watts
    assert energy.joules == pytest.approx(sum(part.joules for part in energy.parts))
    assert energy.peak_w is None
    assert not energy.synchronized
    assert any(note.startswith("not-synchronized: synchronize=False") for note in energy.notes)
    assert len(str(energy).splitlines()) == 6
    assert not energy.modelled
    assert covers(warm.result(), 764.0)


@pytest.mark.usefixtures("nvml")
def test_one_recording_serves_all_meters_of_a_gpu() -> None:
    """However the GPU is named; the thread is one."""
    meters = [tuner.energy(device=name, synchronize=False) for name in (UUID, "0", UUID)]
    with meters[0], meters[1], meters[2]:
        names = [thread.name for thread in threading.enumerate()]
    assert names.count("tuner-energy") == 1


def test_a_gpu_that_is_lost_has_no_energy(nvml: State) -> None:
    """The reason is in the error; the program goes on."""
    with tuner.energy(device=UUID, synchronize=False) as region:
        lose(nvml.first)
        spend(0.05)
    with pytest.raises(PowerError, match="stopped answering"):
        region.result()


def test_a_zone_that_vanishes_is_told(host: Path) -> None:
    """What it counted before is there, with an interval as wide as what is missing."""
    meter = tuner.energy("package+dram")
    with meter as region:
        spend(0.1)
        shutil.rmtree(host / "class/powercap/intel-rapl:0")
        spend(0.1)
    assert any("powercap:package stopped answering" in note for note in region.notes)
    assert covers(region.result(), 164.0)
    assert region.uncertainty_j > 0.05 * region.joules


def test_no_gpu_and_no_host_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver, and on a host without RAPL."""
    monkeypatch.setattr(powercap, "ROOT", str(tmp_path))
    with pytest.raises(SensorUnavailableError, match="no power reading"):
        tuner.energy(device="7")
    with pytest.raises(InputError, match=r"^scope=cpu: "):
        tuner.energy("cpu")


# --- streams -------------------------------------------------------------------------------------


class CudaLibrary:
    """Stands for ``torch.cuda`` or ``cupy.cuda``: counts what it was asked to wait for."""

    def __init__(self) -> None:
        self.waited: list[int] = []
        self.capturing = self.initialized = False
        self.error: RuntimeError | None = None

    def is_initialized(self) -> bool:
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def get_current_stream(self) -> Any:
        return SimpleNamespace(is_capturing=lambda: self.capturing)

    def synchronize(self, index: int) -> None:
        if self.error is not None:
            raise self.error
        self.waited.append(index)

    def Device(self, index: int) -> Any:  # noqa: N802 - CuPy's name
        return SimpleNamespace(synchronize=lambda: self.synchronize(index))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> CudaLibrary:
    """CUDA's second GPU is NVML's first one."""
    made = CudaLibrary()
    monkeypatch.setattr("tuner.joules.watching.who", lambda index: ((SECOND_UUID, UUID)[index], "580"))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    return made


@pytest.mark.usefixtures("nvml")
@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_both_ends_wait_for_the_gpu(name: str, library: CudaLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the library that the program has imported; where that cannot be, the region says so."""
    meter = tuner.energy(device=1)
    with meter as neither:
        spend()
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(cuda=library))
    library.initialized = True
    with meter as region:
        assert library.waited == [1]
    assert library.waited == [1, 1]
    library.capturing = True
    with meter as captured:
        spend()
    library.capturing, library.error = False, RuntimeError("illegal address")
    with meter as failed:
        spend()

    assert region.result().synchronized
    for other, reason in ((neither, "neither"), (captured, "captures a CUDA graph"), (failed, "illegal")):
        assert not other.result().synchronized
        assert any("not-synchronized" in note and reason in note for note in other.notes)


@pytest.mark.usefixtures("nvml")
def test_streams_and_functions_are_waited_for(library: CudaLibrary) -> None:
    """What the program gives is called at both ends, and nothing else."""
    stream = SimpleNamespace(synchronize=lambda: library.waited.append(7))
    with tuner.energy(device=UUID, synchronize=stream) as region:
        assert library.waited == [7]
    with tuner.energy(device=UUID, synchronize=lambda: library.waited.append(8)):
        pass
    assert library.waited == [7, 7, 8, 8]
    assert region.result().synchronized
    with tuner.energy(device=UUID) as unknown:
        pass
    assert any("name it cuda:N" in note for note in unknown.notes)

    def lost() -> None:
        raise RuntimeError("an illegal memory access")

    with pytest.raises(ZeroDivisionError), tuner.energy(device=UUID, synchronize=lost) as failed:
        raise ZeroDivisionError
    assert failed.ended
    assert any("waiting failed: an illegal memory access" in note for note in failed.notes)


@pytest.mark.usefixtures("nvml")
@pytest.mark.parametrize("form", ["block", "window", "function"])
def test_what_its_end_waits_for_is_within_a_region(form: str) -> None:
    """The end is when the wait for the GPU is over: the region is as long as that wait at least."""
    lasted_s: list[float] = []

    def wait() -> None:  # for longer than all before
        begun_s = now_s = time.monotonic()
        while now_s - begun_s <= begun_s - opened_s:
            now_s = time.monotonic()
        lasted_s.append(now_s - begun_s)

    meter = tuner.energy(device=UUID, synchronize=wait)
    opened_s = time.monotonic()
    if form == "window":
        meter.begin("name")
        region = meter.end("name")
    elif form == "block":
        with meter as region:
            pass
    else:
        measured = meter(lambda: None)
        measured()
        (region,) = measured.regions  # type: ignore[attr-defined]  # set by the decorator
    assert region.seconds >= lasted_s[-1]


# --- processes -----------------------------------------------------------------------------------


def ended(program: str) -> tuple[str, str, int]:
    """What a process of its own writes to its outputs, and its exit status."""
    with begun(code=program) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    return out, err, process.returncode


def test_a_forked_child_measures_for_itself() -> None:
    """A meter of the parent works in its child; a region that the parent began is the parent's."""
    program = f"""
import os, tuner
meter = tuner.energy(device={SIM!r})
with meter as open_region:
    with meter: pass
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    else:
        with meter as own: pass
        assert own.result().seconds > 0
if child == 0:
    try:
        open_region.result()
    except tuner.model.errors.PowerError as error:
        assert "forked" in str(error)
        os._exit(0)
    os._exit(1)
assert open_region.result().joules > 0
print("done")
"""
    assert ended(program) == ("done\n", "", 0)


def test_a_process_may_end_within_a_region() -> None:
    """The recording ends with it, at once and without a word; no CUDA library was imported."""
    program = f"""
import sys, tuner
meter = tuner.energy(device={SIM!r})
meter.begin("all")
assert not {{"cupy", "torch", "cupy_backends"}} & set(sys.modules)
"""
    assert ended(program) == ("", "", 0)


# --- docs/regions.md -----------------------------------------------------------------------------


def test_the_examples_of_the_page_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, in one namespace; what is printed has the form that the page shows."""
    monkeypatch.chdir(tmp_path)  # where they write
    page = (Path(__file__).parent.parent / "docs" / "regions.md").read_text()
    names: dict[str, Any] = {}
    for example in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(compile(example, "docs/regions.md", "exec"), names)  # noqa: S102 - a page of this project
    shown = page.split("```\n")[2].splitlines()[0]

    def form(line: str) -> str:
        return re.sub(r"[\d.,]+", "0", line)

    assert form(capsys.readouterr().out.splitlines()[0]) == form(shown)


def test_the_page_names_every_argument() -> None:
    """And the members of a result."""
    page = (Path(__file__).parent.parent / "docs" / "regions.md").read_text()
    for name in inspect.signature(tuner.energy).parameters:
        assert f"\n| `{name}` | " in page
    for name in ("joules", "uncertainty_j", "mean_w", "mean_uncertainty_w", "peak_w", "parts", "notes"):
        assert hasattr(RegionEnergy, name) or name in RegionEnergy.__dataclass_fields__
        assert f"`{name}`" in page
