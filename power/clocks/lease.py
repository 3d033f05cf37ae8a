"""Clocks and power limits held through a lease: ``tuner-clockd`` or a guardian restores them in any case."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from tuner.model.errors import ClockError, ClockLostError

from ..base import ClockReading, kind_of
from ..nvml.clocks import NvmlPowerLimitActuator, NvmlPowerProfileActuator, is_rounded
from .actuator import Actuator, ClockActuator, demand
from .clockd_client import PATIENCE_S, Answer, ClockRequest, SetterConnection, SetterLink, setting_request

_RENEWALS_PER_TTL = 4.0  # three may be late
_LOG = logging.getLogger(__name__)
_A = TypeVar("_A", bound=Actuator)


class LeasedSetting(Generic[_A]):
    """A setting of a GPU; opening and reading change nothing, and reach nobody.

    The lease is the connection, from the first ``locked`` until ``close``: nobody else sets it between two
    blocks either. A thread renews it. When the other side is gone, or has ended the lease because this
    process slept for too long, ``demand_held`` and the end of ``locked`` raise a ClockLostError: what was
    measured meanwhile was measured at no known setting.

    Args:
        actuator: reads the setting and tells what can be set, and is never asked to set it; closed with this
            control.
        connect: reaches who sets it.
        patience_s: how long an answer may take.
        renewals: of the lease, in the time that the other side lets this one be silent.
    """

    def __init__(
        self,
        actuator: _A,
        connect: Callable[[], SetterLink],
        *,
        patience_s: float = PATIENCE_S,
        renewals: float = _RENEWALS_PER_TTL,
    ) -> None:
        self._actuator = actuator
        self._connect = connect
        self._patience_s = patience_s
        self._renewals = renewals
        self._lease: _LeaseThread | None = None
        self._value: int | None = None

    def demand_held(self) -> None:
        """Raise a ClockLostError where a value was asked for that is no longer held."""
        lease = self._lease
        if self._value is not None and lease is not None:
            lease.demand_held()

    @contextlib.contextmanager
    def locked(self, value: int) -> Iterator[None]:
        """Hold the GPU at a value while the block runs and restore what was there on every way out.

        Whether the GPU follows is for the measurer to see, under load.

        Args:
            value: MHz of a clock, watts of a power limit, ID of a power profile.

        Raises:
            ClockPermissionError: it may not be set by whom this user may ask.
            ClockError: the value is not supported or not allowed, another process holds this GPU's setting,
                the lease was lost in the middle, or it could not be set or restored.
            InputError: the administrator's file is wrong.
        """
        actuator = self._actuator
        if self._value is not None:
            kind = kind_of(actuator.control)
            raise ClockError(
                f"the {kind.value} of {actuator.gpu} is held at {self._value} {kind.unit} already"
            )
        demand(actuator, value)
        lease = self._leased()
        try:
            self._value = value
            lease.ask(setting_request(actuator.control, actuator.gpu, value))
            yield
        except BaseException:
            self._release(lease, quietly=True)
            raise
        self._release(lease, quietly=False)

    def close(self) -> None:
        """End the lease, which restores what is still held, and release everything."""
        lease, self._lease = self._lease, None
        try:
            if lease is not None:
                lease.close()
        finally:
            self._actuator.close()

    def _leased(self) -> "_LeaseThread":
        """The lease, or a new one where the old one was lost."""
        if self._lease is not None and self._lease.lost is not None:
            lease, self._lease = self._lease, None
            lease.close()
        if self._lease is None:
            what = kind_of(self._actuator.control).value
            connection = SetterConnection(self._connect(), self._patience_s)
            self._lease = _LeaseThread(connection, what, self._renewals)
        return self._lease

    def _release(self, lease: "_LeaseThread", *, quietly: bool) -> None:
        self._value = None
        try:
            answer = lease.ask(ClockRequest("reset"))
        except ClockError as error:
            if not quietly:
                raise
            _LOG.error("%s", error)
            return
        for what in answer.get("left", ()):
            _LOG.warning("%s: %s", self._actuator.gpu, what)


class LeasedClocks(LeasedSetting[ClockActuator]):
    """Implements ``tuner.power.base.ClockControl``; see ``LeasedSetting``."""

    def supported_mhz(self) -> tuple[int, ...]:
        """See ``ClockControl.supported_mhz``; without those that the administrator does not allow.

        Raises:
            InputError: the administrator's file is wrong.
        """
        return self._actuator.supported()

    def read(self) -> ClockReading:
        """See ``ClockControl.read``.

        Raises:
            ClockLostError: the clock that was asked for is no longer held.
            ClockError: the GPU stopped answering.
        """
        self.demand_held()
        return self._actuator.read()


class LeasedPowerLimit(LeasedSetting[NvmlPowerLimitActuator]):
    """Implements ``tuner.power.base.PowerLimitControl``; see ``LeasedSetting``."""

    _supported_w: tuple[int, ...] | None = None

    def supported_w(self) -> tuple[int, ...]:
        """See ``PowerLimitControl.supported_w``; as they were when they were first asked for.

        Raises:
            ClockError: the GPU stopped answering.
            InputError: the administrator's file is wrong.
        """
        if self._supported_w is None:
            self._supported_w = self._actuator.supported()
        return self._supported_w

    def read_w(self) -> float:
        """See ``PowerLimitControl.read_w``.

        Raises:
            ClockLostError: the limit that was asked for is no longer held, or another program has changed it.
            ClockError: the GPU stopped answering.
        """
        self.demand_held()
        watts, set_w = self._actuator.read_w(), self._value
        if set_w is not None and not is_rounded(watts, set_w):
            raise ClockLostError(
                f"the power limit is {watts:g} W, not the {set_w} W that were set: another program changed it"
            )
        return watts


class LeasedPowerProfile(LeasedSetting[NvmlPowerProfileActuator]):
    """A power profile that is held; see ``LeasedSetting``."""

    def names(self) -> dict[str, int]:
        """See ``NvmlPowerProfileActuator.names``."""
        return self._actuator.names()


class _LeaseThread:
    """A connection that a thread keeps alive; whatever breaks it is remembered.

    Args:
        connection: to who sets.
        what: is set, for people.
        renewals: in the time that the other side lets this one be silent.

    Attributes:
        lost: why the lease has ended; None while it holds.
    """

    def __init__(self, connection: SetterConnection, what: str, renewals: float) -> None:
        self.lost: str | None = None
        self._what = what
        self._connection = connection
        self._turn = threading.Lock()
        self._ended = threading.Event()
        try:
            self._interval_s = connection.greeted_s() / renewals
        except BaseException:
            connection.close()
            raise
        self._thread = threading.Thread(target=self._renew, name="clock-lease", daemon=True)
        self._thread.start()

    def ask(self, request: ClockRequest) -> Answer:
        """See ``SetterConnection.ask``; a broken connection ends the lease, which restores what was set."""
        with self._turn:
            self._demand_not_lost()
            try:
                return self._connection.ask(request)
            except ClockLostError as error:
                self.lost = str(error)
                self._connection.hang_up()  # one that hangs finds that out when it goes on
                raise ClockLostError(f"the {self._what} is not held: {error}") from error
            except ClockError:
                raise
            except BaseException:  # Ctrl-C before the answer: the next one would be taken for another's
                self.lost = "it was interrupted"
                self._connection.hang_up()
                raise

    def demand_held(self) -> None:
        """Raise a ClockLostError if the lease has ended; costs no conversation while it holds."""
        if self.lost is None and self._connection.has_news():
            self.ask(ClockRequest("renew"))  # hears why
        self._demand_not_lost()

    def close(self) -> None:
        """End the lease, and come back when what was set is restored."""
        self._ended.set()
        try:
            with self._turn:
                if self.lost is None:
                    self.lost = "the lease was given up"
                    self._connection.leave()
        except ClockLostError as error:
            _LOG.error("%s", error)
        finally:
            self._connection.close()
            self._thread.join()

    def _demand_not_lost(self) -> None:
        if self.lost is not None:
            raise ClockLostError(f"the {self._what} is not held: {self.lost}")

    def _renew(self) -> None:
        try:
            while not self._ended.wait(self._interval_s):
                self.ask(ClockRequest("renew"))
        except ClockError as error:
            if not self._ended.is_set():
                _LOG.warning("%s", error)
