"""A GPU whose clock can be set, without a driver: what is done to it is seen, what it does is chosen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.errors import ClockError
from tuner.interfaces import ClockReading

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

    def supported_mhz(self) -> tuple[int, ...]:
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

    def restore(self, old: Mapping[str, Any], new_mhz: int) -> list[str]:
        assert self.open
        self.state.calls.append(f"restore {new_mhz}")
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

    def open(self, control: str, gpu: str) -> FakeActuator:
        if control != FakeActuator.control or gpu not in self.gpus:
            raise ClockError(f"there is no {control} GPU {gpu}")
        return FakeActuator(self.gpus[gpu])
