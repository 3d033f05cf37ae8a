"""Lets every Python process of a daemon meet a played GPU: patches modules as they are imported.

Loaded by the ``sitecustomize`` that ``daemon_scene`` writes, so in all processes that the daemon starts. It
imports nothing of the package by itself: what a process does not use costs it nothing.
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


def _play_gpu(choice: Any) -> None:
    """``cuda:0`` is the played GPU; other devices are what they are."""
    real = choice.open_device

    def open_device(spec: str | None, *args: Any, **options: Any) -> Any:
        if spec is None or not spec.startswith("cuda"):
            return real(spec, *args, **options)
        import daemon_gpu  # noqa: PLC0415 - only by who opens it

        return daemon_gpu.opened(spec, *args, **options)

    choice.open_device = open_device


def _play_clocks(controls: Any) -> None:
    """Clocks are those of the fake NVML, their journals in the scene."""
    from tuner.power.clocks.actuator import ClockPaths  # noqa: PLC0415 - loaded by now, not before

    folder = Path(os.environ["PLAYED_FOLDER"])
    nothing = folder / "nothing"
    controls.SYSTEM = ClockPaths(os.environ["PLAYED_NVML"], nothing, nothing, folder / "run", nothing)


def _hurry(warmth: Any) -> None:
    """The power of this GPU is settled at once."""
    warmth.APART_S = 0.0


PATCHES: dict[str, Callable[[Any], None]] = {
    "tuner.devices.choice": _play_gpu,
    "tuner.power.clocks.control": _play_clocks,
    "tuner.measurement.settle": _hurry,
}


class _Patched(Loader):
    def __init__(self, inner: Any, patch: Callable[[Any], None]) -> None:
        self._inner = inner
        self._patch = patch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._inner.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        self._patch(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in PATCHES:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                spec.loader = _Patched(spec.loader, PATCHES[fullname])
                return spec
        return None


def install() -> None:
    """Patch what is imported from now on."""
    sys.meta_path.insert(0, _Finder())
