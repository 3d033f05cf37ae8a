"""Records the power of a program from outside: process, sensors, signals, marks, result."""
