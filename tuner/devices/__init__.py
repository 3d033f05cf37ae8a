"""Where trials run: CUDA GPUs and modelled ones."""
