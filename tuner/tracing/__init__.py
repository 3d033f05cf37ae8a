"""Recording the power of a program from outside: its command, the sensors, marks, and the joules."""

from tuner.tracing.energy import Timeline, TracedEnergy, memory_s, traced_energy

__all__ = ["Timeline", "TracedEnergy", "memory_s", "traced_energy"]
