"""Launches under AddressSanitizer: in a process of their own, which every finding ends."""

import atexit
import functools
import os
import re
import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from host_compile import HostRunError, runner_program

SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=0",
}
TELLING = (  # what of a report is kept, a line each
    r"(\S+:\d+:\d+: runtime error: .*)",
    r"ERROR: AddressSanitizer: ([\w-]+)",
    r"^((?:READ|WRITE) of size \d+)",
    r"^ +(#0 .*)",
    r" is located (.*)",
)


class Runner:
    """The process; the next launch after a finding starts another.

    Args:
        flags: options of g++ the units are built with.
    """

    def __init__(self, flags: Sequence[str]) -> None:
        self._program = runner_program(flags)
        self._process: subprocess.Popen[bytes] | None = None
        self._report: IO[bytes] | None = None

    def launch(
        self, library: Path, function: str, how: bytes, arguments: Sequence[tuple[bytes, bool, bool]]
    ) -> list[bytes]:
        """Runs one launch.

        Args:
            library: of the unit.
            function: its name there.
            how: the ``Launch`` of ``tests/host/runtime.h``.
            arguments: content, whether it is an array, whether that may be written.

        Returns:
            The arrays' content afterwards, in their order.

        Raises:
            HostRunError: the sanitizer or the machine found something.
        """
        name = str(library).encode()
        head = struct.pack("=III4x", len(name), len(function), len(arguments))
        given = b"".join(
            struct.pack("=QII", len(data), array, writable) for data, array, writable in arguments
        )
        content = b"".join(data for data, _, _ in arguments)
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(how + head + given + content + name + function.encode())
        process.stdin.flush()
        trouble = self._read(process, struct.unpack("=I", self._read(process, 4))[0])
        if trouble:
            self.close()  # its threads' stacks are marked as they were left
            raise HostRunError(trouble.decode())
        return [self._read(process, len(data)) for data, array, _ in arguments if array]

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._report is not None:
            self._report.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._report = tempfile.TemporaryFile()  # noqa: SIM115 - `close` does
            self._process = subprocess.Popen(
                [self._program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._report,
                env={**os.environ, **SANITIZER_OPTIONS},
            )
        return self._process

    def _read(self, process: subprocess.Popen[bytes], count: int) -> bytes:
        assert process.stdout is not None
        data = process.stdout.read(count)
        if len(data) == count:
            return data
        assert self._report is not None
        status = process.wait()
        self._report.seek(0)
        report = self._report.read().decode(errors="replace")
        self.close()
        found = (re.search(pattern, report, re.MULTILINE) for pattern in TELLING)
        raise HostRunError(
            "; ".join(m[1] for m in found if m) or f"ended with status {status}:\n{report[-2000:]}"
        )


def runner(flags: tuple[str, ...]) -> Runner:
    """This thread's runner of units built with ``flags``; it ends with this process."""
    return _runner(flags, threading.get_ident())


@functools.cache
def _runner(flags: tuple[str, ...], _thread: int) -> Runner:
    made = Runner(flags)
    atexit.register(made.close)
    return made
