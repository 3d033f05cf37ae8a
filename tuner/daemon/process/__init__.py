"""``tunerd`` as a process: start, socket, signals, GPUs and reloads."""
