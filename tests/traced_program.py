"""Run by tests: a program that lets the fake GPU draw power, and marks when it does.

The length of the busy time in seconds is its first argument, its exit code the second.
"""

import ctypes
import mmap
import os
import sys
import time

from fake_nvml_state import State, script

from tuner.system.marks import mark

IDLE_W, BUSY_W = 120.0, 600.0


def main() -> int:
    busy_s, code = float(sys.argv[1]), int(sys.argv[2])
    with open(os.environ["FAKE_NVML_STATE"], "r+b") as stream:  # noqa: PTH123 - as short as can be
        state = State.from_buffer(mmap.mmap(stream.fileno(), ctypes.sizeof(State)))
    now_s = time.monotonic()
    script(state, (0.0, IDLE_W), (now_s, BUSY_W), (now_s + busy_s, IDLE_W))
    mark("busy")
    time.sleep(busy_s)
    mark("done")
    sys.stdout.write("the program's own output\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
