"""Tuning written as pragmas in a CUDA file: read, and expanded to a kernel file and a source without them."""
