"""Recording the power of a program from outside: its command, the sensors, marks, and the joules."""

from tuner.tracing.energy import TracedEnergy, traced_energy
from tuner.tracing.series import Timeline, memory_s

__all__ = ["Timeline", "TracedEnergy", "memory_s", "traced_energy"]
