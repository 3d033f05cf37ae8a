"""Kernels of the catalogue on CuPy arrays, with the configurations that tuning found: ``tuner.apply``."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tuner.application.advice import Advisor
from tuner.application.calls import Application, ApplicationCall
from tuner.application.choice import Chosen
from tuner.config.catalog import Catalog
from tuner.database import default_path
from tuner.model import TunableValue

__all__ = ["Chosen", "apply", "chosen"]


@cache
def _application() -> Application:
    return Application(Catalog.load(), default_path(), Advisor())


def apply(
    kernel: str,
    /,
    *arrays: Any,  # noqa: ANN401 - cupy.ndarray, which has no type information
    out: Any | Sequence[Any] | None = None,  # noqa: ANN401 - same
    stream: Any | None = None,  # noqa: ANN401 - cupy.cuda.Stream, same
    configuration: Mapping[str, TunableValue] | None = None,
    **sizes: int | str,
) -> Any:  # noqa: ANN401 - same
    """Run a kernel on CuPy arrays, without copying them, and return its outputs.

    The kernel is put into the stream and may still run when this returns, as with CuPy's own functions. The
    first call for a kernel, its sizes and batch compiles and loads it; later ones only launch it.

    Args:
        kernel: name in the catalogue, e.g. ``scan-lf``.
        arrays: C-contiguous arrays of shape (batch, N) on one GPU, in the order of the kernel file; arrays of
            shape (N,) are a batch of one.
        out: array to write to, of the shape and type that would be allocated, apart from the inputs; a
            sequence of them for a kernel with several outputs.
        stream: where to run; None for CuPy's current stream.
        configuration: a value for every tunable; None for the best that the daemon or the database knows for
            this GPU, sizes and the nearest batch, or the kernel file's default where none is known.
        sizes: sizes that shapes and types do not tell, e.g. ``direction="inverse"``.

    Returns:
        ``out``, or the array allocated for it; a tuple for a kernel with several.

    Raises:
        InputError: an argument cannot be used; the message names it and what would be right.
        DeviceUnavailableError: there is no driver, or no CuPy.
        CompilerUnavailableError: no NVRTC compiles for the GPU.
        CompileError: the kernel does not compile in this configuration.
        DeviceError: the GPU has no room for the arrays, or refuses the launch.
    """
    return _application().apply(ApplicationCall(kernel, arrays, configuration, sizes), out, stream)


def chosen(
    kernel: str,
    /,
    *arrays: Any,  # noqa: ANN401 - cupy.ndarray, which has no type information
    configuration: Mapping[str, TunableValue] | None = None,
    **sizes: int | str,
) -> Chosen:
    """The configuration that ``apply`` takes for the same arguments, and its origin.

    Nothing is compiled or run.

    Raises:
        InputError: an argument cannot be used; the message names it and what would be right.
        DeviceUnavailableError: there is no driver, or no CuPy.
    """
    return _application().chosen(ApplicationCall(kernel, arrays, configuration, sizes))
