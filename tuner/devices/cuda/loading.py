"""Loads compiled stages onto the device, with the attributes that they ask for."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from tuner.compiler.compiler import CompiledStage
from tuner.devices.cuda.driver import DriverCalls
from tuner.devices.cuda.launches import LaunchRefusedError, SymbolAddress
from tuner.devices.cuda.types import CudaFunction
from tuner.model.device import DeviceLimits
from tuner.model.elements import element_dtype
from tuner.model.plan import Buffer, Stage
from tuner.model.trial import Status
from tuner.space.launches import refusal

_SHARED_WITHOUT_ASKING = 48 * 1024
_PORTABLE_CLUSTER = 8

# CUfunction_attribute of cuda.h, where CuPy has no name for it
_REQUIRED_CLUSTER_WIDTH = 11
_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
_CLUSTER_SCHEDULING_POLICY_PREFERENCE = 15
_LOAD_BALANCING = 2  # CUclusterSchedulingPolicy


@dataclass(frozen=True)
class LoadedFunction:
    """A function on the device, with what its stage asks for.

    Attributes:
        held: blocks of a stage that the device holds at the same time; None where the stage does not ask.
        symbols: variables that arrays are copied to.
    """

    function: CudaFunction
    held: int | None
    symbols: tuple[SymbolAddress, ...] = ()


class StageLoader:
    """Loads stages onto a device, and refuses those that it cannot launch.

    Args:
        cp: CuPy, with the device current whenever a method is called.
        limits: of the device.
        driver: the calls of the driver that CuPy lacks.
    """

    def __init__(self, cp: ModuleType, limits: DeviceLimits, driver: DriverCalls) -> None:
        self._cp = cp
        self._limits = limits
        self._driver = driver

    def check(self, stage: Stage) -> None:
        """Refuse what no compiler could make fit.

        Raises:
            LaunchRefusedError: the device lacks what the stage needs.
        """
        reason = refusal(stage, self._limits)
        if reason:
            raise refused(stage, reason)

    def loaded(self, stage: Stage, compiled: CompiledStage, buffers: Sequence[Buffer]) -> LoadedFunction:
        """The function of a stage, loaded.

        Args:
            stage: what is launched.
            compiled: its code.
            buffers: of its plan.

        Raises:
            LaunchRefusedError: it asks for more than the device has, or a variable is smaller than its array.
            CUDADriverError: the driver does not load it (CuPy's).
            DriverCallError: the same, of calls that CuPy lacks.
        """
        driver = self._cp.cuda.driver
        shared_bytes = stage.shared_bytes + compiled.resources.static_shared_bytes
        if shared_bytes > self._limits.shared_bytes_per_block:
            raise refused(
                stage,
                f"{shared_bytes} bytes of shared memory per block;"
                f" the device has {self._limits.shared_bytes_per_block}",
            )
        module = self._cp.cuda.function.Module()
        module.load(compiled.cubin)
        function: CudaFunction = module.get_function(compiled.lowered_name)
        if shared_bytes > _SHARED_WITHOUT_ASKING:
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(function.ptr, attribute, stage.shared_bytes)
        symbols = self._symbols(stage, module.ptr, compiled, buffers) if stage.symbols else ()
        if stage.cluster > 1:
            return LoadedFunction(function, self._held_in_clusters(stage, function), symbols)
        asks = stage.resident or stage.cooperative
        return LoadedFunction(function, self._held(stage, function) if asks else None, symbols)

    def _symbols(
        self, stage: Stage, module: int, compiled: CompiledStage, buffers: Sequence[Buffer]
    ) -> tuple[SymbolAddress, ...]:
        """Where the variables of a module are, when they hold the arrays that they are filled from."""
        found = []
        for (name, buffer), lowered in zip(stage.symbols, compiled.symbols, strict=True):
            array = next(one for one in buffers if one.name == buffer)
            address, size = self._driver.variable(module, lowered)
            wanted = array.elements * element_dtype(array.dtype).itemsize
            if size < wanted:
                raise refused(
                    stage,
                    f"{stage.source.path}: the variable {name} has {size} bytes, and the argument {buffer}"
                    f" that fills it has {wanted} ({array.dtype} of shape {array.shape})",
                )
            found.append(SymbolAddress(buffer, address, wanted))  # from its beginning on
        return tuple(found)

    def _held(self, stage: Stage, function: CudaFunction) -> int:
        threads = stage.threads_per_block
        per_sm: int = self._cp.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            function.ptr, threads, stage.shared_bytes
        )
        if per_sm < 1:
            raise refused(stage, f"no block of {threads} threads fits on a multiprocessor")
        return per_sm * self._limits.multiprocessors

    def _held_in_clusters(self, stage: Stage, function: CudaFunction) -> int | None:
        """Ask for clusters, and make sure that the device has room for one."""
        driver, cluster = self._cp.cuda.driver, stage.cluster
        declared = driver.funcGetAttribute(_REQUIRED_CLUSTER_WIDTH, function.ptr)
        if declared != cluster:
            raise refused(stage, f"clusters of {cluster}, and the source has __cluster_dims__({declared})")
        if cluster > _PORTABLE_CLUSTER:
            driver.funcSetAttribute(function.ptr, _NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
        driver.funcSetAttribute(function.ptr, _CLUSTER_SCHEDULING_POLICY_PREFERENCE, _LOAD_BALANCING)
        clusters = self._driver.max_active_clusters(function.ptr, stage.block, stage.shared_bytes, cluster)
        if clusters < 1:
            raise refused(
                stage,
                f"no cluster of {cluster} blocks of {stage.threads_per_block} threads and"
                f" {stage.shared_bytes} bytes of dynamic shared memory fits on the device",
            )
        return clusters * cluster if stage.resident or stage.cooperative else None


def refused(stage: Stage, message: str) -> LaunchRefusedError:
    """The error of a stage that cannot be launched."""
    return LaunchRefusedError(Status.LAUNCH_ERROR, f"stage {stage.name}: {message}")
