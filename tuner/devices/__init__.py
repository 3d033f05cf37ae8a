"""Devices that run trials: CUDA GPUs and modelled ones."""
