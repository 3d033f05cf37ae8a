"""The process of one attempt at a job: it opens the GPU, measures, stores, and says how it ended."""

import os
import sys
from typing import NoReturn

from tuner.daemon import logs
from tuner.daemon.running.attempt import Attempt
from tuner.daemon.running.stopping import Stopping
from tuner.daemon.running.telling import Teller
from tuner.daemon.running.wire import errand_from
from tuner.system.process import die_with_parent


def main(telling: int, lifeline: int) -> NoReturn:
    """Be the process: the errand comes on standard input, events and the ending go into a pipe.

    Args:
        telling: descriptor of that pipe.
        lifeline: descriptor of a pipe whose other end only the daemon holds.
    """
    stopping = Stopping()
    with stopping.noted():
        die_with_parent(lifeline)
        for descriptor in (telling, lifeline):
            os.set_inheritable(descriptor, False)
        logs.configure()
        errand = errand_from(sys.stdin.read())
        with logs.about(job=errand.job, gpu=errand.order.device):
            teller = Teller(telling, errand.order.objective)
            teller.end(Attempt(errand, teller, stopping).go())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # at once, and still deaf: nothing of the interpreter is worth an orderly end
