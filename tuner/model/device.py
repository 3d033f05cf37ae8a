"""What a device is: its limits and its identity."""

from dataclasses import dataclass

OLDEST_ARCHITECTURE = 50  # NVRTC compiles for none below; older GPUs are only modelled, with its code


@dataclass(frozen=True)
class DeviceLimits:
    """The occupancy inputs of one GPU (Table I of the multi-kernel paper, with the allocation units).

    Attributes:
        compute_capability: (major, minor).
        multiprocessors: SMs of the GPU.
        warp_size: devWarpSize.
        max_threads_per_block: largest block.
        max_threads_per_sm: devMaxThreadsSM.
        max_warps_per_sm: devMaxWSM.
        max_blocks_per_sm: devMaxTBSM.
        registers_per_sm: devRegsLimitSM.
        registers_per_block: most registers one block may hold.
        max_registers_per_thread: compiler limit.
        register_alloc_unit: devRegAllocUnit; registers are allocated per warp in this unit.
        warp_alloc_granularity: warps that hold registers are rounded to a multiple of this.
        shared_bytes_per_sm: devMaxSharedMemSM.
        shared_bytes_per_block: most shared memory one block may ask for (opt-in limit where there is one).
        shared_alloc_unit: devSharedMemAllocUnit.
        shared_reserved_bytes: shared memory the system takes of every block (1 KiB from 8.0 on).
        memory_bytes: device memory.
        l2_bytes: second-level cache.
    """

    compute_capability: tuple[int, int]
    multiprocessors: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    registers_per_block: int
    max_registers_per_thread: int
    register_alloc_unit: int
    warp_alloc_granularity: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    shared_alloc_unit: int
    shared_reserved_bytes: int
    memory_bytes: int
    l2_bytes: int

    @property
    def architecture(self) -> str:
        """NVRTC's name of the compute capability, e.g. ``sm_90``."""
        return f"sm_{self.compute_capability[0]}{self.compute_capability[1]}"

    def reaches(self, min_architecture: int) -> bool:
        """Whether code for a compute capability (times ten) runs here; GPUs before 5.0 run that of 5.0."""
        major, minor = self.compute_capability
        return max(10 * major + minor, OLDEST_ARCHITECTURE) >= min_architecture


@dataclass(frozen=True)
class DeviceIdentity:
    """What a stored result is bound to.

    Attributes:
        spec: how the user names it: ``cuda:0``, ``sim:jetson-tx1``.
        name: product name.
        uuid: GPU UUID; for a simulated device its spec.
        driver: driver version, or the version of the model.
        runtime: CUDA (NVRTC) version that made the code, or empty.
        modelled: True for a simulated device.
        recorded: day of the recording that is replayed, or ``undated``; empty where trials run.
    """

    spec: str
    name: str
    uuid: str
    driver: str
    runtime: str
    modelled: bool
    recorded: str = ""

    @property
    def label(self) -> str:
        """What its numbers are: ``modelled``, ``recorded``, both, or empty where they are measured."""
        words = ("recorded" if self.recorded else "", "modelled" if self.modelled else "")
        return ", ".join(filter(None, words))
