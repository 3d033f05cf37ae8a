"""Power profiles through NVML: requested for a run, given back on every way out, others' left alone."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from cli_process import PATIENCE_S, begun, tuner
from fake_nvml_state import NO_PERMISSION, NOT_SUPPORTED, UUID, State, fake_nvml, library
from test_cli_program import FIRST, OWN
from tuner.power.clocks import control
from tuner.power.clocks.actuator import ClockPaths, ClockRules, load_config
from tuner.power.clocks.control import open_power_profiles
from tuner.power.nvml.clocks import NvmlPowerProfileActuator

from tuner.devices.base import Device
from tuner.measurement.settle import SettingLock
from tuner.model.errors import ClockError, InputError
from tuner.model.jobs import DeviceIdentity
from tuner.model.trial import Energy, Trial
from tuner.programs.measuring import ProgramMeasurer, ProgramRun
from tuner.programs.program import Program
from tuner.programs.tuning import BystandingDevice, tune_program
from tuner.report.progress import RunProgress
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup

MAX_Q, COMPUTE = 1, 2


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    with fake_nvml(tmp_path) as state:
        state.profile_bits = 0b110
        yield state


@pytest.fixture
def where(nvml: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClockPaths:
    """Everything in a folder of the test."""
    assert nvml.gpu_count
    nothing = tmp_path / "nothing"
    found = ClockPaths(library(), nothing, tmp_path / "clockd.toml", tmp_path / "run", nothing)
    monkeypatch.setattr(control, "SYSTEM", found)
    return found


@pytest.fixture
def actuator(nvml: State) -> Iterator[NvmlPowerProfileActuator]:
    assert nvml.requested_profiles == 0
    with closing(NvmlPowerProfileActuator(UUID)) as opened:
        yield opened


def test_profiles_have_names(nvml: State, actuator: NvmlPowerProfileActuator) -> None:
    """Those of NVML's header, and the ID of one that is newer than it."""
    nvml.profile_bits |= 1 << 31
    assert actuator.names() == {"max-q": MAX_Q, "compute": COMPUTE, "31": 31}


def test_others_requests_are_left_alone(nvml: State, actuator: NvmlPowerProfileActuator) -> None:
    """What was requested before stays so, the same profile too."""
    nvml.requested_profiles = 1 << COMPUTE
    for profile in (MAX_Q, COMPUTE):
        old = actuator.before()
        actuator.set(profile)
        assert nvml.requested_profiles == 1 << COMPUTE | 1 << profile
        assert actuator.restore(old, profile) == []
        assert nvml.requested_profiles == 1 << COMPUTE


def test_a_profile_that_stays_is_an_error(nvml: State, actuator: NvmlPowerProfileActuator) -> None:
    """A driver that does not do what it says is found out, so that the journal stays."""
    old = actuator.before()
    actuator.set(MAX_Q)
    nvml.disobedient = 1
    with pytest.raises(ClockError, match=r"power profile 1 of .* is still requested"):
        actuator.restore(old, MAX_Q)


def test_the_administrator_rules(tmp_path: Path, nvml: State) -> None:
    """A range of IDs, from 0 on; one that is none names file and key."""
    assert nvml.profile_bits
    config = tmp_path / "clockd.toml"
    config.write_text('[power_profiles]\n"*" = [0, 1]\n')
    rules = load_config(config).rules(UUID)
    with closing(NvmlPowerProfileActuator(UUID, rules=lambda _: rules)) as opened:
        assert opened.names() == {"max-q": MAX_Q}
    config.write_text('[power_profiles]\n"*" = [2, 1]\n')
    with pytest.raises(InputError, match=r"clockd.toml: power_profiles\.\*: .* in NVML's IDs"):
        load_config(config)
    assert ClockRules().allowed((0, 3), "powerprofile") == (3, 0)


def test_one_is_held_and_given_back(nvml: State, where: ClockPaths) -> None:
    """By the guardian, with an entry of the journal meanwhile; a second holder waits."""
    with closing(open_power_profiles(UUID)) as profiles:
        with profiles.locked(MAX_Q):
            assert nvml.requested_profiles == 1 << MAX_Q
            assert (where.directory or Path()).joinpath(f"powerprofile-{UUID}.json").exists()
            with closing(open_power_profiles(UUID)) as second, pytest.raises(ClockError, match="is held by"):
                second.locked(COMPUTE).__enter__()
        assert nvml.requested_profiles == 0


@pytest.mark.parametrize(
    ("call", "result", "says"),
    [
        ("profiles", NOT_SUPPORTED, "has no power profile that may be set"),
        ("set_profile", NO_PERMISSION, "may not set the power profile"),
    ],
)
def test_refusals(nvml: State, where: ClockPaths, call: str, result: int, says: str) -> None:
    """A GPU that has none, and a user who may not."""
    assert where.directory
    setattr(nvml, call, result)
    with pytest.raises(ClockError, match=says), closing(open_power_profiles(UUID)) as profiles:
        profiles.locked(MAX_Q).__enter__()
    assert nvml.requested_profiles == 0


def test_one_is_reset_by_order(nvml: State, where: ClockPaths) -> None:
    """Whoever has requested it."""
    assert where.directory
    nvml.requested_profiles = 1 << COMPUTE
    result = tuner("clocks", "restore", "--reset-power-profile", UUID)
    assert (result.exit_code, result.stdout) == (0, f"{UUID}: power profile reset\n")
    assert nvml.requested_profiles == 0


def test_a_program_chooses_one(nvml: State, where: ClockPaths, tmp_path: Path) -> None:
    """It is a tunable that no word of the command shows; the answer is held while the command runs."""
    assert where.directory
    program = Program.of_options(("sh",), profiles=("max-q", "compute"))
    seen: list[int] = []

    def run(trial: Trial, _most_s: float, _times: int) -> ProgramRun:
        assert program.rendered(trial.configurations[0]) == (["sh"], {})
        seen.append(int(nvml.requested_profiles))
        joules = {0: 500.0, 1 << MAX_Q: 400.0, 1 << COMPUTE: 450.0}[seen[-1]]
        return ProgramRun(10.0, Energy(joules, 0.001 * joules, joules / 10.0, "scripted", "gpu"), {})

    @contextmanager
    def opened(*_: object) -> Iterator[MeasurementSetup]:
        device: Device = BystandingDevice(
            DeviceIdentity("cuda:0", "NVIDIA H200", UUID, "1", "", modelled=False)
        )
        with closing(open_power_profiles(UUID)) as profiles:
            tries = ProgramMeasurer(
                program,
                run,
                SettingLock(None, None, profiles),
                precision=0.01,
                needs_energy=True,
                tell=list[str]().append,
                profiles=profiles.names(),
            )
            with closing(tries):
                yield MeasurementSetup(device, tries, None, "", "scripted", 0.0, ())

    with RunProgress("energy") as progress:
        outcome = tune_program(
            program, SearchRequest(objective="energy"), progress, opened, database=tmp_path / "tuner.db"
        )
    assert outcome.answer is not None
    assert outcome.trials[outcome.answer][0].configurations[0]["power_profile"] == "max-q"
    assert (set(seen), nvml.requested_profiles) == ({0, 1 << MAX_Q, 1 << COMPUTE}, 0)

    words = ("program", "exec", *FIRST, "--use", "1", "--database", tmp_path / "tuner.db", "--")
    command = ("sh", "-c", "echo ready; exec sleep 60")
    process = begun(library(), tmp_path, *words, *command, code=OWN + COMMAND)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert nvml.requested_profiles == 1 << MAX_Q
    process.terminate()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert "held while it runs: power profile max-q" in err
    assert nvml.requested_profiles == 0


COMMAND = "from tuner.__main__ import main; main()"
