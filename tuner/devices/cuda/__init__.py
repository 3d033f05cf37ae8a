"""CUDA GPUs, through CuPy. The only place that imports CuPy."""
