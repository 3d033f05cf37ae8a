"""NVRTC: kernels to cubins with their registers, shared memory and spills, without a GPU."""
