"""Run by tests: a program whose time and power follow the clock and the limit that the fake GPU is held at.

Its arguments are its time at the highest clock in seconds, and what it prints.
"""

import ctypes
import mmap
import os
import sys
import time

from fake_nvml_state import CLOCKS_MHZ, State, script

IDLE_W = 120.0
CORES_W = 480.0  # at the highest clock, by its third power


def main() -> None:
    with open(os.environ["FAKE_NVML_STATE"], "r+b") as stream:  # noqa: PTH123 - as short as can be
        state = State.from_buffer(mmap.mmap(stream.fileno(), ctypes.sizeof(State)))
    share = (state.locked_max_mhz or CLOCKS_MHZ[0]) / CLOCKS_MHZ[0]
    busy_s, watts = float(sys.argv[1]) * (0.8 + 0.2 / share), IDLE_W + CORES_W * share**3
    now_s = time.monotonic()
    script(state, (0.0, IDLE_W), (now_s, watts), (now_s + busy_s, IDLE_W))
    time.sleep(busy_s)
    sys.stdout.write(" ".join(sys.argv[2:]) + f" {state.locked_max_mhz} {state.limit_milliwatts}\n")


if __name__ == "__main__":
    main()
