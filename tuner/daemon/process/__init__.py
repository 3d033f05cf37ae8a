"""``tunerd`` as a process: what it stands on, listens on, is told by signals, and asks of the machine."""
