"""NVML: the library, its power readings, the health of a GPU and its clocks."""
