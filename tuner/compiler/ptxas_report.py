"""What ptxas reports of a compiled kernel, out of NVRTC's log."""

import re

from tuner.model.plan import Resources


def resources_in(log: str, lowered_name: str, architecture: str) -> Resources | None:
    """What ptxas reports of one entry under ``--ptxas-options=-v``; None if it reports nothing of it."""
    # The two lines stay together, also where a unit's entries are compiled at the same time.
    report = re.search(
        rf"Function properties for {re.escape(lowered_name)}\n"
        r"\D*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
        r"[^\n]*Used (\d+) registers([^\n]*)",
        log,
    )
    if report is None:
        return None
    stack, stores, loads, registers = map(int, report.groups()[:4])
    shared = re.search(r"(\d+) bytes smem", report[5])
    return Resources(
        registers_per_thread=registers,
        static_shared_bytes=int(shared[1]) if shared else 0,
        spill_bytes=stores + loads,
        local_bytes=stack,
        architecture=architecture,
    )
