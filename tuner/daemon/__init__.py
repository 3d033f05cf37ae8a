"""The daemon: tuning as a service.

One process, ``tunerd``, answers clients and decides what is tuned when; it holds no GPU, sets no clock and
runs no kernel. Each attempt at a job is a process of its own, which may hang, crash or be killed.
"""
