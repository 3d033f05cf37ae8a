"""The daemon: tuning as a service.

One process, ``tunerd``, answers clients and decides what is tuned when; it holds no GPU, sets no clock and
runs no kernel. Each job runs in a process of its own (``running``), which may hang, crash or be killed.
"""
