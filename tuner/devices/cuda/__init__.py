"""CUDA GPUs, through CuPy. The only place that imports CuPy."""

from tuner.devices.cuda.device import CudaDevice

__all__ = ["CudaDevice"]
