"""A GPU whose clock can be set, without a driver: what is done to it is seen, what it does is chosen."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.power.base import ClockReading
from tuner.power.clocks.actuator import Actuator
from tuner.power.clocks.clockd import Leases
from tuner.power.clocks.clockd_client import ClockRequest
from tuner.power.clocks.journal import JournalEntry, Undo

from tuner.model.errors import ClockError

CLOCKS_MHZ = (1980, 1500, 900, 345)


@dataclass
class FakeGpu:
    """The GPU: its clock, and what its next calls raise, in order (None: nothing)."""

    gpu: str = "GPU-1"
    held_mhz: int | None = None
    calls: list[str] = field(default_factory=list)
    set_errors: list[Exception | None] = field(default_factory=list)
    restore_errors: list[Exception | None] = field(default_factory=list)

    def fail(self, errors: list[Exception | None]) -> None:
        error = errors.pop(0) if errors else None
        if error is not None:
            raise error


class FakeActuator:
    """Implements ``Actuator`` over a FakeGpu."""

    control = "nvml"

    def __init__(self, state: FakeGpu) -> None:
        self.state = state
        self.open = True

    @property
    def gpu(self) -> str:
        return self.state.gpu

    @property
    def name(self) -> str:
        return f"fake {self.state.gpu}"

    def permitted(self) -> bool:
        return True

    def listed(self) -> tuple[int, ...]:
        return CLOCKS_MHZ

    def supported(self) -> tuple[int, ...]:
        return CLOCKS_MHZ

    def read(self) -> ClockReading:
        return ClockReading(float(self.state.held_mhz or CLOCKS_MHZ[0]))

    def before(self) -> dict[str, Any]:
        return {"held_mhz": self.state.held_mhz}

    def set(self, mhz: int) -> None:
        assert self.open
        self.state.calls.append(f"set {mhz}")
        self.state.fail(self.state.set_errors)
        self.state.held_mhz = mhz

    def restore(self, old: Mapping[str, Any], new: int) -> list[str]:
        assert self.open
        self.state.calls.append(f"restore {new}")
        self.state.fail(self.state.restore_errors)
        self.state.held_mhz = old["held_mhz"]
        return []

    def reset(self) -> None:
        self.state.held_mhz = None

    def close(self) -> None:
        self.open = False


class FakeGpus:
    """The GPUs of a machine, opened by name."""

    def __init__(self, *names: str) -> None:
        self.gpus = {name: FakeGpu(name) for name in names}

    def __getitem__(self, name: str) -> FakeGpu:
        return self.gpus[name]

    def open(self, control: str, gpu: str, _user: int | None = None) -> FakeActuator:
        if control != FakeActuator.control or gpu not in self.gpus:
            raise ClockError(f"there is no {control} GPU {gpu}")
        return FakeActuator(self.gpus[gpu])


def restored_by(kind: Callable[[str], Actuator]) -> Undo:
    """What restores from the journal alone, with an actuator of a kind."""

    def undo(entry: JournalEntry) -> list[str]:
        with closing(kind(entry.gpu)) as actuator:
            return list(actuator.restore(entry.old, entry.new))

    return undo


class Holder:
    """One client of leases in this process.

    Args:
        open_actuator: opens its GPU, each time anew: a lease closes it.
        run_dir: of the journal.
        undo: undoes what is in the journal; what the actuator does if not given.
    """

    def __init__(
        self, open_actuator: Callable[[], Actuator], run_dir: Path, undo: Undo | None = None
    ) -> None:
        actuator = open_actuator()
        self._request = ClockRequest("set", actuator.control, actuator.gpu)
        self._run_dir = run_dir
        self.leases = Leases(
            run_dir,
            lambda *_: open_actuator(),
            undo or (lambda entry: actuator.restore(entry.old, entry.new)),
        )
        self._close = actuator.close

    def set(self, mhz: int) -> None:
        """Hold a clock."""
        self.leases.set("client", replace(self._request, mhz=mhz))

    def end(self) -> bool:
        """Give up, and try again to restore what could not be; True where no journal is left."""
        self.leases.drop("client")
        self.leases.restore_stale()
        self._close()
        return not list(self._run_dir.glob("*.json"))
