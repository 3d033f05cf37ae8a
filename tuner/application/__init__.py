"""Kernels of the catalogue on arrays of CuPy, PyTorch and others, with the configurations that tuning found.

``tuner.apply`` runs one, ``tuner.plan`` binds one to its arrays for runs that cost little.
"""

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tuner.application.bound_kernels import KernelPlan
from tuner.application.calls import Application
from tuner.application.choice import Advisor, Chosen, UntunedAnswers
from tuner.application.keys import untold_sizes
from tuner.database.connection import default_path
from tuner.kernel_files.catalog import Catalog, load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError
from tuner.model.plan import TunableValue, Workload

__all__ = ["Chosen", "KernelPlan", "TunedKernel", "apply", "chosen", "plan"]


@cache
def _application() -> Application:
    return Application(Catalog.load(), default_path(), Advisor(), UntunedAnswers())


class TunedKernel:
    """A kernel of a file, a program or a result, to be launched on arrays: a call is one of ``apply``.

    Args:
        file: the kernel.
        workload: the sizes that it was tuned at; those that arrays do not tell are taken. None for no such.
        configuration: what it is launched with; None for the best that is known.
    """

    def __init__(
        self,
        file: KernelFile,
        workload: Workload | None = None,
        configuration: Mapping[str, TunableValue] | None = None,
    ) -> None:
        self.file, self.configuration = file, configuration
        self.sizes = {} if workload is None else untold_sizes(file, workload)

    def __repr__(self) -> str:
        shown = "the best that is known" if self.configuration is None else dict(self.configuration)
        return f"TunedKernel({self.file.name!r}, {shown})"

    @cached_property
    def application(self) -> Application:
        """The kernel beside the catalogue; its answers are looked up as those of the others."""
        return _application().beside(self.file)

    def __call__(
        self,
        *arrays: Any,  # noqa: ANN401 - arrays of whatever library
        out: Any | Sequence[Any] | None = None,  # noqa: ANN401 - same
        stream: Any | None = None,  # noqa: ANN401 - same
        **sizes: int | str,
    ) -> Any:  # noqa: ANN401 - same
        """Run the kernel; see ``apply``."""
        asked = {**self.sizes, **sizes}
        return self.application.apply(
            self.file.name, arrays, asked, out=out, stream=stream, configuration=self.configuration
        )


class Applicable(Protocol):
    """A ``tuner.Kernel`` or a ``tuner.Result``."""

    def applicable(self) -> TunedKernel:
        """The kernel to launch."""


KernelLike: TypeAlias = str | Path | TunedKernel | Applicable
"""The name of a kernel, a kernel file, a kernel of a program, or the result of tuning one."""

_FILES = (".toml", ".cu")


def _tuned(kernel: KernelLike) -> TunedKernel:
    if isinstance(kernel, TunedKernel):
        return kernel
    if isinstance(kernel, str | Path):
        return _of_file(Path(kernel).absolute())
    if isinstance(kernel, type) or not hasattr(kernel, "applicable"):
        raise InputError(
            f"kernel is {kernel!r}; it must be the name of a kernel, a kernel file, a tuner.Kernel or a"
            " tuner.Result"
        )
    return kernel.applicable()


@cache
def _of_file(path: Path) -> TunedKernel:
    return TunedKernel(load_kernel_file(path))


def _called(
    kernel: KernelLike,
    configuration: Mapping[str, TunableValue] | str | None,
    sizes: Mapping[str, int | str],
) -> tuple[Application, str, Mapping[str, TunableValue] | str | None, Mapping[str, int | str]]:
    """Return who knows the kernel, its name there, the configuration and the sizes that are asked for."""
    if isinstance(kernel, str) and not kernel.endswith(_FILES):
        return _application(), kernel, configuration, sizes
    tuned = _tuned(kernel)
    asked = tuned.configuration if configuration is None else configuration
    return tuned.application, tuned.file.name, asked, {**tuned.sizes, **sizes}


def apply(
    kernel: KernelLike,
    /,
    *arrays: Any,  # noqa: ANN401 - arrays of whatever library
    out: Any | Sequence[Any] | None = None,  # noqa: ANN401 - same
    stream: Any | None = None,  # noqa: ANN401 - same
    configuration: Mapping[str, TunableValue] | str | None = None,
    **sizes: int | str,
) -> Any:  # noqa: ANN401 - same
    """Run a kernel on arrays of a GPU, without copying them, and return its outputs.

    Arrays are CuPy's, tensors of PyTorch, or have DLPack or the CUDA array interface. If one is a tensor,
    PyTorch's current stream is used and outputs are tensors; otherwise CuPy's current stream is used, and
    outputs are arrays of the first array's library where its namespace takes arrays by DLPack, else CuPy's.

    The kernel is put into the stream and may still run when this returns, as with CuPy's own functions. The
    first call for a kernel, its sizes and batch compiles and loads it; later ones only launch it. While the
    stream is being captured, a call that would compile, allocate or wait is refused.

    Args:
        kernel: name in the catalogue, e.g. ``scan-lf``; the path of a kernel file, read once; a
            ``tuner.Kernel``, for arrays of the shapes it was made with and with the same numbers; or the
            ``tuner.Result`` of tuning one kernel, whose best configuration is then taken.
        arrays: arrays of shape (batch, N) on one GPU, in the order of the kernel file; arrays of shape (N,)
            are a batch of one. They are C-contiguous; where the kernel file allows it, rows may lie apart.
        out: array to write to, of the shape and type that would be allocated, apart from the inputs or, where
            the kernel file allows it, the input itself; a sequence of them for a kernel with several outputs.
        stream: where to run, a stream of CuPy, of PyTorch, or with ``__cuda_stream__``; None for the current.
        configuration: a value for every tunable; ``"default"`` for the kernel file's default; None for the
            best that the daemon or the database knows for this GPU, sizes and the nearest batch; where
            nothing was tuned what the kernel file states, or its default.
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
    application, name, configuration, asked = _called(kernel, configuration, sizes)
    return application.apply(name, arrays, asked, out=out, stream=stream, configuration=configuration)


def plan(
    kernel: KernelLike,
    /,
    *arrays: Any,  # noqa: ANN401 - arrays of whatever library, or shapes
    out: Any | Sequence[Any] | None = None,  # noqa: ANN401 - same
    configuration: Mapping[str, TunableValue] | str | None = None,
    **sizes: int | str,
) -> KernelPlan:
    """A kernel bound to its arrays: a call of what is returned looks nothing up, and launches.

    Everything that ``apply`` does once is done here, and scratch arrays are allocated. The plan is called
    without arguments for the arrays given here, or with other arrays of their shapes and types; ``out=`` and
    ``stream=`` are as with ``apply``. Its own output is a torch tensor or a CuPy array. See
    ``KernelPlan`` for threads, streams and memory.

    Args:
        kernel: as ``apply`` takes it.
        arrays: as ``apply`` takes them; or their shapes, e.g. ``(16, 1024)``, for a plan on the current GPU
            that is called with arrays. Types are then those of the sizes, or the kernel file's defaults.
        out: what runs write to that name no other; None for an output that the plan allocates and each run
            overwrites.
        configuration: as with ``apply``.
        sizes: as with ``apply``.

    Raises:
        InputError: an argument cannot be used; the message names it and what would be right.
        DeviceUnavailableError: there is no driver, or no CuPy.
        CompilerUnavailableError: no NVRTC compiles for the GPU.
        CompileError: the kernel does not compile in this configuration.
        DeviceError: the GPU has no room for the arrays, or refuses the configuration.
    """
    application, name, configuration, asked = _called(kernel, configuration, sizes)
    return application.plan(name, arrays, asked, out=out, configuration=configuration)


def chosen(
    kernel: KernelLike,
    /,
    *arrays: Any,  # noqa: ANN401 - arrays of whatever library
    configuration: Mapping[str, TunableValue] | str | None = None,
    **sizes: int | str,
) -> Chosen:
    """The configuration that ``apply`` takes for the same arguments, and its origin.

    Nothing is compiled or run.

    Raises:
        InputError: an argument cannot be used; the message names it and what would be right.
        DeviceUnavailableError: there is no driver, or no CuPy.
    """
    application, name, configuration, asked = _called(kernel, configuration, sizes)
    return application.chosen(name, arrays, asked, configuration=configuration)
