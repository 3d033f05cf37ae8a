"""NVRTC: kernels to cubins with their registers, shared memory and spills, without a GPU."""

from tuner.compiler.compiler import CompiledStage, Compiler

__all__ = ["CompiledStage", "Compiler"]
