"""Tune concurrent GPU kernels, and the GPU clock, for time or energy."""

from typing import TYPE_CHECKING

__all__ = ["apply", "chosen"]

if TYPE_CHECKING:
    from tuner.application import apply, chosen
else:

    def __getattr__(name):  # noqa: ANN001, ANN202 - hidden from type checkers, who would take every name
        """``apply`` and ``chosen``, imported when first asked for: commands start without them."""
        if name in __all__:
            from tuner import application  # noqa: PLC0415 - as the docstring says

            return getattr(application, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
