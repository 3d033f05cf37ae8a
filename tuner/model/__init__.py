"""The words of the project as values: workload, configuration, plan, trial, measurement.

All values are frozen, hashable where a policy may want them as keys, and plain enough to cross a pipe to
a worker process. Times are seconds, energies joules, powers watts, clocks megahertz, sizes bytes.
"""
