"""NVRTC: kernels to cubins with their registers, shared memory and spills, without a GPU."""

from typing import TYPE_CHECKING

__all__ = ["CompiledStage", "Compiler"]

if TYPE_CHECKING:
    from tuner.compiler.compiler import CompiledStage, Compiler
else:

    def __getattr__(name):  # noqa: ANN001, ANN202 - hidden from type checkers, who would take every name
        """What ``__all__`` names, when first asked for: compile children import ``nvrtc`` alone."""
        if name in __all__:
            from tuner.compiler import compiler  # noqa: PLC0415 - as the docstring says

            return getattr(compiler, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
