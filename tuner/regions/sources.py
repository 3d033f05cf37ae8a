"""The recordings of this process: one for each GPU and each part of the host, opened once."""

import atexit
import os
import re
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tuner.devices.scopes import GPU, host_samplers, parts_of
from tuner.joules.recording import BackgroundRecording
from tuner.joules.watching import find_gpu, opened
from tuner.model.errors import InputError
from tuner.regions.simulated import SimulatedLoad, simulated_samplers

_SIMULATED = "sim:"
_CUDA = re.compile(r"cuda(?::([0-9]{1,4}))?")


@dataclass(frozen=True)
class Source:
    """Where the power of one part of a scope is read.

    Attributes:
        device: as the user names it; ``host`` for packages and DRAM.
        recording: shared by all regions.
        cuda: CUDA's number of the GPU; None where it has none, or nobody tells.
        modelled: True for a simulated GPU.
    """

    device: str
    recording: BackgroundRecording
    cuda: int | None = None
    modelled: bool = False

    @property
    def is_gpu(self) -> bool:
        """True for a real GPU, whose work runs on when a call has returned."""
        return self.device != HOST and not self.modelled


HOST = "host"
"""The device of packages and DRAM."""


class SourceRegistry:
    """The sources that are open; they stay so until the process ends."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sources: dict[tuple[str, str], tuple[Source, ...]] = {}
        self._recordings: dict[str, BackgroundRecording] = {}
        self._opened = ExitStack()

    def sources(self, scope: str, devices: Sequence[str], sensor: str | None) -> tuple[Source, ...]:
        """The sources of a scope, the GPUs first.

        Args:
            scope: see ``scopes.parts_of``.
            devices: the GPUs.
            sensor: the GPUs' reading; None for the best.

        Raises:
            InputError: what is asked for is not there; a part of it would be counted twice.
            SensorUnavailableError: no reading of a GPU answers.
            DeviceUnavailableError: there is no such GPU.
        """
        parts = parts_of(scope)
        found: list[Source] = []
        with self._lock:
            if GPU in parts:
                found += [self._gpu(device, sensor) for device in devices]
            _check_apart(scope, parts, found)
            for part in parts:
                if part != GPU:
                    found += self._host(scope, part)
        return tuple(found)

    def close(self) -> None:
        """End all recordings, and release the sensors unless one of them does not return."""
        with self._lock:
            ended = [recording.close() for recording in self._recordings.values()]
            if all(ended):
                self._opened.close()
            self._recordings.clear()
            self._sources.clear()

    def _gpu(self, device: str, sensor: str | None) -> Source:
        known = self._sources.get((device, sensor or ""))
        if known is None:
            opener = self._simulated if device.startswith(_SIMULATED) else self._real
            known = self._sources[device, sensor or ""] = (opener(device, sensor),)
        return known[0]

    def _simulated(self, device: str, sensor: str | None) -> Source:
        load = SimulatedLoad(device)
        recording = BackgroundRecording(simulated_samplers(load, sensor), load=load)
        self._recordings[f"{device} {sensor or ''}"] = recording
        return Source(device, recording, modelled=True)

    def _real(self, device: str, sensor: str | None) -> Source:
        gpu = find_gpu(device or None, "tuner.energy", "sim:NAME of a simulated GPU")
        key = f"{gpu.gpu} {sensor or ''}"
        if key not in self._recordings:
            samplers = self._opened.enter_context(opened(gpu, [sensor] if sensor else []))
            self._recordings[key] = BackgroundRecording(samplers)
        cuda = _CUDA.fullmatch(device or "cuda:0")
        return Source(device or gpu.name, self._recordings[key], int(cuda[1] or 0) if cuda else None)

    def _host(self, scope: str, part: str) -> tuple[Source, ...]:
        known = self._sources.get((HOST, part))
        if known is None:
            found = []
            for sampler in host_samplers(scope, (part,)):
                self._opened.callback(sampler.close)
                name = sampler.info.name
                if name not in self._recordings:
                    self._recordings[name] = BackgroundRecording([sampler])
                found.append(Source(HOST, self._recordings[name]))
            known = self._sources[HOST, part] = tuple(found)
        return known


def _check_apart(scope: str, parts: Sequence[str], gpus: Sequence[Source]) -> None:
    """Refuse to count a host twice, or one that is not there."""
    if len(parts) == 1 or GPU not in parts:
        return
    for source in gpus:
        info = source.recording.info
        if source.modelled:
            raise InputError(
                f"scope={scope!r}: {source.device} is simulated and has no host; scope='gpu' counts it"
            )
        if info.scope != GPU:
            raise InputError(
                f"scope={scope!r}: {info.name} sees {info.scope}, more than the GPU, and the host would be"
                " counted twice; scope='gpu' counts it once"
            )


REGISTRY = SourceRegistry()
"""The sources of this process."""

_INHERITED: list[SourceRegistry] = []  # of the processes that forked this one: not released here


def _forget() -> None:
    """Begin anew in a forked child: threads and locks were not forked with it."""
    global REGISTRY  # noqa: PLW0603 - the one of the process
    _INHERITED.append(REGISTRY)
    REGISTRY = SourceRegistry()


def _close() -> None:
    REGISTRY.close()


os.register_at_fork(after_in_child=_forget)
atexit.register(_close)
