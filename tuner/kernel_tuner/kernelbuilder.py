"""``kernel_tuner.kernelbuilder``, which is not supported: its names are refused where they are imported."""

from typing import NoReturn

from tuner.model.errors import UnsupportedError


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    raise UnsupportedError(
        f"kernelbuilder.{name} is not supported: tuner.apply launches what was tuned, in your process"
    )
