"""Power sensors beside NVML, and what several share: fresh samples, rhythm, lines of tools, trace files."""
