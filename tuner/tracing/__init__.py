"""Recording the power of a program from outside: its command, sensors, signals, marks, and the result."""
