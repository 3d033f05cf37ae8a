"""Tune concurrent GPU kernels, and the GPU clock, for time or energy."""
