"""Power rails of a Jetson: what a rail feeds, which add up to a board, and samplers of a tool's lines.

Boards name their rails alike, and new boards join parts in new ways (``VDD_CPU_GPU_CV``,
``VDD_CPU_SOC_MSS``), so names are taken apart instead of listed.

No total of a board counts a rail that another one of it feeds. Where no document says what feeds what, the
total is what the newest ``tegrastats`` prints. ``ti,summation-disable`` in a device tree says nothing of
that: it keeps a channel out of the sum of shunt voltages that an INA3221 holds against its limit (kernel
documentation, ``ti,ina3221.yaml``), as the 5 V supply of an AGX Orin, whose limit is that of GPU, SOC, CPU
and CV.
"""

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import IO

from tuner.model.errors import PowerError, SensorUnavailableError

from ..base import Reading, Response, Sample, SensorInfo
from .changes import Freshness, check_answers, sound

# --- Which rails of a board add up to what its module draws.


@dataclass(frozen=True)
class RailBoard:
    """The rails of one board.

    Attributes:
        name: of the board.
        total: the rails that add up to what the module draws.
        feeder: one of them that feeds other rails that are measured; empty where none does.
        inside: these.
        source: what says so.
    """

    name: str
    total: tuple[str, ...]
    feeder: str
    inside: tuple[str, ...]
    source: str


BOARDS = (
    RailBoard(
        "TX1",
        ("VDD_IN",),
        "VDD_IN",
        ("VDD_GPU", "VDD_CPU"),
        "Jetson Linux Developer Guide 32.6.1, Power Management; NVIDIA forum, topic 201037: VDD_MUX is the"
        " carrier board's, beside it",
    ),
    RailBoard(
        "TX2",
        ("VDD_IN",),
        "VDD_IN",
        ("VDD_SYS_GPU", "VDD_SYS_SOC", "VDD_SYS_CPU", "VDD_SYS_DDR", "VDD_4V0_WIFI"),
        "the same",
    ),
    RailBoard(
        "Nano",
        ("POM_5V_IN",),
        "POM_5V_IN",
        ("POM_5V_GPU", "POM_5V_CPU"),
        "NVIDIA forum, topic 73608: POM_5V_IN is the whole input, the others are in it",
    ),
    RailBoard(
        "Xavier NX, Orin NX, Orin Nano",
        ("VDD_IN",),
        "VDD_IN",
        ("VDD_CPU_GPU_CV", "VDD_SOC"),
        "NVIDIA forum, topic 200883: VDD_IN is the total of the module",
    ),
    RailBoard(
        "AGX Xavier",
        ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"),
        "",
        (),
        "Jetson AGX Xavier Product Design Guide, sections 5.2 and 5.6.2: SYS5V hangs on SYS_VIN_MV, which is"
        " beside the SYS_VIN_HV of the others",
    ),
    RailBoard(
        "AGX Orin, IGX Orin",
        ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"),
        "VIN_SYS_5V0",
        ("VDDQ_VDD2_1V8AO",),
        "Jetson Linux Developer Guide 36.4.3, Software-Based Power Consumption Modeling, and NVIDIA forum,"
        " topic 223111, as three public collectors quote them: VIN_SYS_5V0 feeds VDDQ_VDD2_1V8AO. tegrastats"
        " of JetPack 6 prints the other three. An IGX Orin's CVB_ATX rails are the carrier board's",
    ),
    RailBoard(
        "Thor",
        ("VIN",),
        "VIN",
        ("VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"),
        "NVIDIA forum, topic 366461: the INA238 measures all of the input, the carrier board's too",
    ),
)


def total_of(names: Sequence[str]) -> tuple[str, ...]:
    """The rails that add up to what a module draws: a known board's, else what no other is known to feed.

    Args:
        names: of the rails that there are, in any case.
    """
    by_name = {name.upper(): name for name in names}
    board_total = next((board.total for board in BOARDS if set(board.total) <= set(by_name)), ())
    fed = {rail for board in BOARDS if board.feeder in by_name for rail in board.inside}
    return tuple(by_name[rail] for rail in board_total or by_name if rail not in fed)


# --- Lines printed by a child process, each stamped on arrival. The child ends with this process.
#
# A thread starts the child and reads it, so that a line's time is that of its coming, not of being asked for.
# The kernel is told to end the child when that thread ends, which it does with this process too, even when
# that is killed: nothing keeps printing into a pipe that nobody reads.

_MOST_LINES = 8192  # lines; more than one recording spans at ten a second
_LONGEST = 65_536  # characters of a line; what never ends one must not eat the memory
_GRACE_S = 1.0  # between asking the child to end and killing it

# Python is started only to ask the kernel for the signal, and then becomes the command: asking between fork
# and exec in this process is not safe beside other threads. Who asks too late finds that the parent is gone.
_SHIM = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    try:
        os.execv(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f"{sys.argv[2]}: {error.strerror}")
"""


class ChildLines:
    """The lines of one child process; of a long time without asking, the last 8192.

    Args:
        command: an absolute path and its arguments. What it prints on standard error counts as lines too, so
            that its complaints can be shown.
        now: clock of the stamps, in seconds.

    Attributes:
        end: exit message of the child, with its last line; None while it runs.
    """

    def __init__(self, command: Sequence[str], now: Callable[[], float]) -> None:
        self._command = list(command)
        self._now = now
        self._changed = threading.Condition()
        self._lines: deque[tuple[float, str]] = deque(maxlen=_MOST_LINES)
        self._count = 0
        self.end: str | None = None
        self._process: subprocess.Popen[str] | None = None
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="tuner-lines", daemon=True)
        self._thread.start()

    def since(self, count: int) -> tuple[int, list[tuple[float, str]]]:
        """The number of lines so far, and those after the first ``count``, each with the time it came."""
        with self._changed:
            fresh = min(self._count - count, len(self._lines))
            return self._count, list(islice(self._lines, len(self._lines) - fresh, None))

    def wait(self, count: int, until_s: float) -> bool:
        """Wait until there are more than ``count`` lines or the child ended; False when it took too long.

        Args:
            count: lines that are known.
            until_s: on the clock of ``time.monotonic``.
        """
        with self._changed:
            left_s = until_s - time.monotonic()
            return self._changed.wait_for(
                lambda: self._count > count or self.end is not None, max(left_s, 0.0)
            )

    def close(self) -> None:
        """End the child and wait until it is gone."""
        with self._changed:
            self._stop = True
            process = self._process
        if process is not None:
            _end(process)
        self._thread.join()

    def _run(self) -> None:
        """The thread: start, read, reap."""
        shim = [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), *self._command]
        try:
            with self._changed:
                if self._stop:
                    return
                self._process = subprocess.Popen(  # noqa: S603 - a path the caller chose, no shell
                    shim,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    encoding="utf-8",
                    errors="replace",
                    start_new_session=True,  # a Ctrl-C of the terminal is for this process to handle
                )
        except OSError as error:
            self._finish(f"cannot be started: {error.strerror}")
            return
        with self._process as process:
            for text in _bounded(process.stdout):
                time_s = self._now()
                with self._changed:
                    self._lines.append((time_s, text))
                    self._count += 1
                    self._changed.notify_all()
        self._finish(_how(process.returncode))

    def _finish(self, how: str) -> None:
        with self._changed:
            last = next((text.strip() for _, text in reversed(self._lines) if text.strip()), "")
            self.end = f"{how}, saying: {last}" if last else how
            self._changed.notify_all()


class SharedLines:
    """One child for several readers: started by the first, ended by the last."""

    def __init__(self, start: Callable[[], ChildLines]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._lines: ChildLines | None = None
        self._users = 0

    def acquire(self) -> ChildLines:
        """The running child; ``release`` it when it is not needed any more."""
        with self._lock:
            if self._lines is None or self._lines.end is not None:
                self._retire()
                self._lines = self._start()
            self._users += 1
            return self._lines

    def release(self) -> None:
        """Let go of the child."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._retire()

    def _retire(self) -> None:
        if self._lines is not None:
            self._lines.close()
            self._lines = None


def _bounded(stream: IO[str] | None) -> Iterator[str]:
    """The lines of a stream without their ends, one that is too long in pieces."""
    while stream is not None and (text := stream.readline(_LONGEST)):
        yield text.rstrip("\r\n")


def _end(process: "subprocess.Popen[str]") -> None:
    """End a child and what it may have started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(
            ProcessLookupError, PermissionError
        ):  # PermissionError: only zombies are left
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
            return


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"


# --- What rails feed, which of them to tune by, and their samplers.

_PARTS = (  # text within a name, and the part of the board it stands for
    ("GPU", "gpu"),
    ("CPU", "cpu"),
    ("SOC", "soc"),
    ("DDR", "memory"),  # VDDRQ of a Xavier holds it as well
    ("VDDQ", "memory"),
    ("DRAM", "memory"),
    ("MEM", "memory"),
)
_WORDS = {"CV": "cv", "MSS": "memory", "CORE": "soc"}  # too short to be looked for within other words
_INPUTS = ("IN", "VIN", "TOTAL")  # last word of the rail that everything else hangs on,
_OF_INPUTS = re.compile(r"VDD|POM|VIN|MODULE|\d+V\d*")  # which has no others: VDD_M2_IN is a slot's
_NUMBER = "#"  # no board has it in a name
_UNCONNECTED = ("", "NC", "N/C", "(NULL)")  # the driver of JetPack 4 prints (null) for a rail without name
Parse = Callable[[str], Mapping[str, float]]
"""The watts of each connected rail of one line; empty for a line that names none. Never raises."""

_STEP_W = 0.04  # 40 uV, the least an INA3221 tells apart, on a shunt of 5 mOhm at 5 V: what modules have
_QUOTED = 120  # characters of a line that a message quotes


@dataclass(frozen=True)
class RailChoice:
    """One rail, or several that are added up.

    Attributes:
        rails: their names.
        scope: what they see together, for people.
        is_total: True where that is all that the module draws.
    """

    rails: tuple[str, ...]
    scope: str
    is_total: bool = False

    @property
    def name(self) -> str:
        """The rail, or the rails joined by ``+``."""
        return "+".join(self.rails)


def is_connected(name: str) -> bool:
    """False for the names that boards give to channels without a rail."""
    return name.strip().upper() not in _UNCONNECTED


def parts(name: str) -> tuple[str, ...]:
    """Return the parts that a rail feeds, of ``input gpu cpu soc cv memory system``; empty if unnamed.

    ``input`` is the rail all others hang on, which is everything the module draws. ``system`` is a supply of
    the board that feeds several parts, without all of them.
    """
    upper = name.upper().partition(_NUMBER)[0]
    words = [word for word in re.split(r"[^A-Z0-9]+", upper) if word]
    fed = {part for text, part in _PARTS if text in upper}
    fed |= {_WORDS[word] for word in words if word in _WORDS}
    if not fed and words and words[-1] in _INPUTS and all(map(_OF_INPUTS.fullmatch, words[:-1])):
        return ("input",)
    if not fed and any(word.startswith("SYS") for word in words):
        return ("system",)
    return tuple(part for part in ("gpu", "cpu", "soc", "cv", "memory") if part in fed)


def choices(names: Sequence[str]) -> list[RailChoice]:
    """Ways to read power from these rails, the best to tune energy by first.

    First what the whole module draws, since a configuration that saves power on the GPU may spend it on
    memory: its input, or, where no rail is the input of the others, the sum of those that count nothing twice
    (``total_of``). Then what the GPU hangs on, and every rail alone.

    Args:
        names: connected rails, each name once.
    """
    inputs = [name for name in names if parts(name) == ("input",)]
    gpus = tuple(name for name in names if "gpu" in parts(name))
    listed = [RailChoice((name,), _scope(name), is_total=True) for name in inputs]
    total = () if inputs else total_of(names)
    if len(total) > 1:
        of = "of all rails" if len(total) == len(names) else "that counts no rail twice"
        listed.append(RailChoice(total, f"{' + '.join(total)} (sum {of})", is_total=True))
    if gpus:
        listed.append(RailChoice(gpus, " + ".join(map(_scope, gpus))))
    listed += [RailChoice((name,), _scope(name)) for name in names]
    first: dict[tuple[str, ...], RailChoice] = {}
    for choice in listed:
        first.setdefault(choice.rails, choice)
    return list(first.values())


def distinct(names: Sequence[str]) -> list[str]:
    """The same names; one that was there before is numbered, as in ``VDD_IN#2``."""
    numbers: set[str] = set()
    result = []
    for name in names:
        numbered = (f"{name}{_NUMBER}{number}" if number > 1 else name for number in itertools.count(1))
        result.append(next(candidate for candidate in numbered if candidate not in numbers))
        numbers.add(result[-1])
    return result


def _scope(name: str) -> str:
    """A rail with what is known to hang on it."""
    fed = parts(name)
    if fed == ("input",):
        return f"{name} (total input)"
    return f"{name} ({', '.join(fed)})" if fed else name


@dataclass(frozen=True)
class LineTool:
    """A tool that prints rails.

    Attributes:
        name: first part of the names of its readings.
        lines: its child, shared by all that read rails.
        parse: reads a line.
        interval_s: time between its lines.
        patience_s: longest time until its first line.
        advice: what a person may do where its lines name no rails.
    """

    name: str
    lines: SharedLines
    parse: Parse
    interval_s: float
    patience_s: float
    advice: str


def rail_readings(tool: LineTool, responses: Callable[[str], Response | None]) -> list[Reading]:
    """The readings of a tool, best first; one that only says why where it prints no rails."""
    lines = tool.lines.acquire()
    try:
        names = list(_first(tool, lines, bool))
    except SensorUnavailableError as error:
        return [unavailable(tool.name, str(error))]
    finally:
        tool.lines.release()
    return [
        Reading(f"{tool.name}:{choice.name}", partial(RailSampler, tool, choice, responses))
        for choice in choices(names)
    ]


def unavailable(name: str, reason: str) -> Reading:
    """A reading that is not there, with the reason."""

    def refuse() -> "RailSampler":
        raise SensorUnavailableError(reason)

    return Reading(name, refuse)


class RailSampler:
    """Implements ``tuner.power.base.PowerSampler`` over a rail, or a sum of rails, of a tool's lines.

    The tool shows what the sensor last measured, at the time of its line; how much of the time between two
    lines that covers is not known.

    Raises:
        SensorUnavailableError: no line names the rails, or they read zero.
    """

    def __init__(
        self, tool: LineTool, choice: RailChoice, responses: Callable[[str], Response | None]
    ) -> None:
        self._tool = tool
        self._rails = choice.rails
        name = f"{tool.name}:{choice.name}"
        self._fresh = Freshness(tool.interval_s, learn=True)
        assumed = Response("boxcar", window_s=tool.interval_s, averages=False)
        self._info = SensorInfo(
            name=name,
            kind="stream",
            scope=choice.scope,
            period_s=tool.interval_s,
            poll_interval_s=tool.interval_s,
            resolution=_STEP_W * len(choice.rails) ** 0.5,
            response=responses(name) or assumed,
            may_be_zero=not choice.is_total,
        )
        self.due_s = 0.0  # unknown: the tool prints when it likes
        self._count = 0
        self._lines = tool.lines.acquire()
        try:
            watts = _first(tool, self._lines, lambda rails: set(self._rails) <= set(rails))
            check_answers(self._info, [sum(watts[rail] for rail in self._rails)])
        except BaseException:
            tool.lines.release()
            raise

    @property
    def info(self) -> SensorInfo:
        """Properties of this reading; the period is learned from the samples."""
        return replace(self._info, period_s=self._fresh.period_s)

    def poll(self) -> list[Sample]:
        """Samples of the lines since the last call; lines that do not name the rails are passed over.

        Raises:
            PowerError: the tool has ended.
        """
        end = self._lines.end  # before the lines are taken, so that none comes between
        self._count, lines = self._lines.since(self._count)
        samples = []
        for time_s, text in lines:
            rails = self._tool.parse(text)
            if all(rail in rails for rail in self._rails):
                samples.append(self._fresh.look(time_s, sum(rails[rail] for rail in self._rails)))
        if not lines and end is not None:
            raise PowerError(f"{self._info.name}: {self._tool.name} {end}")
        return sound(self._info, [sample for sample in samples if sample is not None])

    def close(self) -> None:
        """Let go of the tool; the last one that does ends it."""
        if self._count >= 0:
            self._count = -1
            self._tool.lines.release()


def _first(
    tool: LineTool, lines: ChildLines, fits: Callable[[Mapping[str, float]], bool]
) -> Mapping[str, float]:
    """The rails of the first line that fits."""
    until_s = time.monotonic() + tool.patience_s
    count, last = 0, ""
    while True:
        end = lines.end
        count, fresh = lines.since(count)
        for _, text in fresh:
            rails = tool.parse(text)
            if fits(rails):
                return rails
            last = text
        if end is not None:
            raise SensorUnavailableError(f"{tool.name} {end}")
        if not lines.wait(count, until_s):
            break
    if not last:
        raise SensorUnavailableError(f"{tool.name} prints nothing within {tool.patience_s:g} s")
    raise SensorUnavailableError(
        f"{tool.name} names no power rails ({tool.advice}); it prints: {last[:_QUOTED]}"
    )
