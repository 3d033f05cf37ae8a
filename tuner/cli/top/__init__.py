"""``tuner top``: the daemon in a terminal. A plain model (events in, rows out), and thin widgets."""
