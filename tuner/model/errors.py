"""Every error that crosses a border of this package.

    TunerError
    ├── InputError                what the user gave cannot be used; exit code 2
    │   ├── KernelFileError       a kernel.toml: names the file and the key
    │   ├── ExpressionError       an expression of a kernel file: names the text and the trouble
    │   │   ├── NoValueError      it comes to a tunable without a value
    │   │   └── ConditionError    the condition of a tunable has no result: holds the tunable
    │   ├── UnsupportedError      an argument of another tuner's functions that means nothing here: names it
    │   ├── UnknownNameError      no such kernel, device, policy, objective, size: names the choices
    │   ├── SpaceSizeError        more configurations than can be listed
    │   └── EmptySpaceError       constraints, limits or pruning leave no configuration
    ├── VerificationError         no configuration gave the answer that the user asked for
    ├── CompileError              one configuration does not compile: names kernel, configuration, line
    │   └── LaunchMisfitError     it compiles, and asks for another launch: names what does not fit
    ├── CompilerUnavailableError  no NVRTC reaches this architecture
    ├── DeviceError               the device failed
    │   └── DeviceUnavailableError  no driver, no CuPy, no such GPU, no permission to open it
    ├── ChildError                a child process ended the call
    │   ├── ChildTimeoutError     it was killed at the time-out
    │   └── ChildCrashedError     it died
    ├── PowerError                a power sensor failed
    │   └── SensorUnavailableError  it is not here, or does not answer a read
    ├── ClockError                a clock could not be read, set or restored
    │   ├── ClockLostError        it was set, and is not held any more
    │   └── ClockRefusedError     it cannot be set, and nothing was changed
    │       └── ClockPermissionError  the process may not set clocks
    ├── StoreError                the database cannot be used as it is
    │   ├── StoreBusyError        another process holds it
    │   ├── StoreFullError        there is no room on the disk
    │   ├── StoreDamagedError     it is corrupted, or none of this program's
    │   └── StoreReadOnlyError    this user may not write it
    ├── JobError                  a job is not as asked for
    │   ├── UnknownJobError       no job has this number
    │   ├── JobStateError         its state cannot become the one asked for
    │   └── QueueFullError        as many jobs wait as may
    ├── DaemonError               the daemon failed, or answered what cannot be understood
    │   ├── DaemonRefusedError    it does not do that now: the job has ended, the queue is full
    │   └── DaemonUnavailableError  none answers there in time, or not to this user: names the group
    │       └── DaemonAbsentError   none listens there
    ├── PoolError                 the workers of a pool cannot be had, or answer what cannot be understood
    │   └── WorkerLostError       one of them has gone
    ├── ResourceError             the system gives no more threads, processes or memory just now
    ├── RunInterrupted            the user or the system asked to stop; results so far are stored
    │   └── PoolLostError         the scheduler of a pool, or the GPU that a run is bound to, has gone
    └── InstallError              the service cannot be installed or removed; calling again goes on

Vendor exceptions (CuPy, NVML, SQLite, OS) are translated at the border they enter by, with ``from``.
"""

from collections.abc import Iterable


class TunerError(Exception):
    """Root of all errors of this package; never raised itself."""

    exit_code = 1


class InputError(TunerError, ValueError):
    """Error for input of the user that cannot be used."""

    exit_code = 2


class RunBusyError(InputError):
    """Another process is measuring the run; trying again when it has ended helps."""


class KernelFileError(InputError):
    """A kernel file is wrong; the message names the file and the key."""


class UncheckableError(InputError):
    """No answer of a workload can be checked: its inputs or its reference cannot be made."""


class ExpressionError(InputError):
    """An expression is not in the language of kernel files, or cannot be evaluated."""


class NoValueError(ExpressionError):
    """An expression comes to a tunable that has no value in this configuration."""


class ConditionError(ExpressionError):
    """The condition of a tunable cannot be evaluated.

    Attributes:
        tunable: its name.
    """

    def __init__(self, tunable: str, message: str) -> None:
        super().__init__(message)
        self.tunable = tunable

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return ConditionError, (self.tunable, str(self))


class UnsupportedError(InputError, NotImplementedError):
    """An argument that has no meaning here; the message names it, and what to do instead."""


class VerificationError(TunerError, RuntimeError):
    """Every configuration gave a wrong answer."""


class UnknownNameError(InputError):
    """A name that is not among the known ones; the message lists the choices."""


class SpaceSizeError(InputError):
    """A space has more configurations than can be listed."""


class EmptySpaceError(InputError):
    """No configuration is left to try."""


class CompileError(TunerError):
    """One configuration of one kernel does not compile.

    Attributes:
        log: all that the compiler says; empty where it says nothing.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log

    def __reduce__(self) -> tuple[type["CompileError"], tuple[str, str]]:
        return type(self), (str(self), self.log)


class LaunchMisfitError(CompileError):
    """Code compiles, and its kernel file launches it otherwise than it asks for.

    Attributes:
        reason: stands in every message, behind the configuration.
    """

    reason = "is not launched as its code asks"


class CompilerUnavailableError(TunerError):
    """No NVRTC on this machine compiles for the architecture asked for."""


class DeviceError(TunerError):
    """A device failed while it was in use."""


class DeviceUnavailableError(DeviceError):
    """A device cannot be opened; the message says what is missing."""


class ChildError(TunerError):
    """A child process did not return an answer."""


class ChildTimeoutError(ChildError):
    """A child process was killed because its call outlasted the time-out."""


class ChildCrashedError(ChildError):
    """A child process died during a call."""


class ResourceError(TunerError):
    """The system gives no more threads, processes, descriptors or memory just now; later it may."""


class PowerError(TunerError):
    """A power sensor failed while it was in use."""


class SensorUnavailableError(PowerError):
    """A power sensor is not here, or a read of it fails."""


class ClockError(TunerError):
    """A clock could not be read, set, verified or restored."""


class ClockLostError(ClockError):
    """A clock that was set is not held any more: what was measured at it counts for nothing."""


class ClockRefusedError(ClockError):
    """A clock cannot be set on this GPU or by this process; nothing was changed."""


class ClockPermissionError(ClockRefusedError):
    """This process may not set clocks."""


class StoreError(TunerError):
    """The database cannot be used as it is."""


class StoreBusyError(StoreError):
    """Another process holds the database; trying again later helps."""


class StoreFullError(StoreError):
    """There is no room for the database on the disk; nothing was changed."""


class StoreDamagedError(StoreError):
    """The database is corrupted, and so is its mirror; or it is no database of this program."""


class StoreReadOnlyError(StoreError):
    """This user may not write the database."""


class JobError(TunerError):
    """A job is not as asked for."""


class UnknownJobError(JobError):
    """No job has this number."""


class JobStateError(JobError):
    """The state of a job cannot become the one asked for."""


class QueueFullError(JobError):
    """As many jobs wait as may wait."""


class DaemonError(TunerError):
    """The daemon failed, or answered what cannot be understood."""


class DaemonRefusedError(DaemonError):
    """The daemon does not do what was asked for now; asking again later may help."""


class DaemonUnavailableError(DaemonError):
    """No daemon answers there in time, or not to this user; the message says what to do."""


class DaemonAbsentError(DaemonUnavailableError):
    """No daemon listens at the address; one that is starting will."""


class PoolError(TunerError):
    """The workers of a pool cannot be had, or one answers what cannot be understood."""


class WorkerLostError(PoolError):
    """A worker of a pool has gone, with what it was doing."""


class InstallError(TunerError):
    """A step of installing or removing the service failed; a second call goes on where it was."""


class RunInterrupted(TunerError):  # noqa: N818 - an order, not a fault
    """The run was asked to stop; what was measured is stored."""

    exit_code = 130


class PoolLostError(RunInterrupted):
    """The scheduler of a pool, or the worker that a run needs, has gone; what was measured is stored."""


def suggestion(name: str, choices: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the choice nearest to ``name``, or an empty text."""
    import difflib  # noqa: PLC0415 - only where something is wrong

    names = list(choices)
    near = [each for each in names if each.lower() == name.lower()]
    near = near or difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
