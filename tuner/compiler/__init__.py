"""NVRTC: kernels to cubins with their registers, shared memory and spills, without a GPU."""

from tuner.compiler.compiler import Compiled, Compiler

__all__ = ["Compiled", "Compiler"]
