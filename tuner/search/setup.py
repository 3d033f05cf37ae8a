"""Everything a run holds open: device, clock control, power meter, measurer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.devices.kinds import replayed
from tuner.devices.sensors import open_clocks, open_meter, open_power_limits, restore_stale_clocks
from tuner.measurement.base import Measurer, TrialGate, TrialPool, TurnGate
from tuner.measurement.measurer import TrialMeasurer
from tuner.measurement.settle import WarmUp
from tuner.measurement.window import least_window_s
from tuner.model.errors import InputError
from tuner.model.objective import GPU, Objective
from tuner.model.run_document import RunSettings
from tuner.power.base import PowerLimitControl, SettableClocks, SettableLimits
from tuner.search.request import SearchRequest
from tuner.system.ownership import BoardTurns

if TYPE_CHECKING:
    from tuner.devices.replay import ReplayDevice


@dataclass(frozen=True)
class MeasurementSetup:
    """An open device with what is needed to measure on it.

    Attributes:
        device: where trials run.
        measurer: measures trials on it.
        clocks: its clocks that can be set; None where there is no clock control.
        no_clocks: why there is none; empty where there is one.
        sensor: its power reading; None where no energy is measured.
        window_s: measuring window of a trial.
        notices: what the user should know of the choices made.
        power_limits: those that can be set; None where there is no control of them, or none was asked for.
        no_power_limits: why there is none; empty where there is one.
        pool: measures lists of trials on several GPUs, the device among them; None where there is only it.
    """

    device: Device
    measurer: Measurer
    clocks: SettableClocks | None
    no_clocks: str
    sensor: str | None
    window_s: float
    notices: tuple[str, ...]
    power_limits: SettableLimits | None = None
    no_power_limits: str = ""
    pool: TrialPool | None = None

    @property
    def measuring(self) -> RunSettings:
        """Window and sensor of the trials: numbers of another sensor or window are other numbers."""
        replay = replayed(self.device)
        if replay is not None:
            from tuner.search.replaying import measured_as  # noqa: PLC0415 - most runs replay nothing

            return measured_as(replay.space)
        return {"window_s": self.window_s, "sensor": self.sensor}


@contextmanager
def open_setup(
    device_spec: str | None,
    request: SearchRequest,
    warming: Callable[[float, float], None] | None = None,
    *,
    allow_simulated: bool = False,
    turns: BoardTurns | None = None,
    gates: Sequence[TrialGate] = (),
) -> Iterator[MeasurementSetup]:
    """Open a device for a request, and close it on every way out, clocks first.

    Args:
        device_spec: ``cuda:N``, ``sim:NAME``, ``replay:FILE``, or None for the automatic choice.
        request: whose objective, sensor, window and seed the measuring follows.
        warming: hears of every window of the GPU's warm-up, see ``WarmUp``.
        allow_simulated: see ``open_device``.
        turns: of the GPUs of this host, whose load would disturb each other's joules; None to take none.
        gates: what the measurer passes before it waits for its turn, and behind it.

    Raises:
        DeviceUnavailableError: the device cannot be opened.
        InputError: the objective needs joules and no power sensor answers, or the one asked for does not, or
            gives none in the window asked for; a recording cannot be used for the request.
    """
    with ExitStack() as stack:
        device, notice = open_device(
            device_spec,
            request.seed,
            run_timeout_s=request.trial_timeout_s,
            workloads=request.workloads,
            allow_simulated=allow_simulated,
        )
        stack.callback(device.close)
        replay = replayed(device)
        if replay is not None:
            yield _replay_setup(replay, request, gates)
            return
        if not device.identity.modelled:
            restore_stale_clocks()
        clocks, no_clocks = open_clocks(device)
        if clocks is not None:
            stack.callback(clocks.close)
        limits, no_limits = _power_limits(device, request)
        if limits is not None:
            stack.callback(limits.close)
        needs_energy = Objective(request.objective).needs_energy
        meter, no_meter = None, ""
        sensor_named = request.sensor is not None or request.scope != GPU
        every = request.joules or (sensor_named and not needs_energy)
        if needs_energy or every:
            meter, no_meter = open_meter(device, clocks, request.sensor, request.scope)
        if meter is not None:
            stack.callback(meter.close)
        elif needs_energy:
            raise InputError(f"--objective {request.objective}: {no_meter}; use --objective time")
        if meter is not None and needs_energy and request.window_s is not None:
            least_s = least_window_s(meter.info)
            if request.window_s < least_s:  # only trials of long rounds would have joules, not the best
                raise InputError(
                    f"--window {request.window_s:g}: {meter.info.name} gives a sample every"
                    f" {meter.info.period_s:.3g} s, and joules need two; choose {least_s:.3g} s or more,"
                    " or --objective time"
                )
        measurer = stack.enter_context(
            TrialMeasurer(
                device,
                meter,
                clocks,
                request.window_s,
                seed=request.seed,
                needs_energy=needs_energy,
                warm_up=WarmUp(device.now_s, warming),
                precision=request.energy_precision,
                thrifty=request.window_s is None and not every,
                limits=limits,
                gates=gates if turns is None else (*gates, TurnGate(turns, alone=meter is not None)),
                timing=request.timing,
            )
        )
        notices = [notice] if notice else []
        if no_meter:
            notices.append(f"no energy is measured: {no_meter}")
        window_s = measurer.window_s
        sensor = None if meter is None else meter.info.name
        yield MeasurementSetup(
            device, measurer, clocks, no_clocks, sensor, window_s, tuple(notices), limits, no_limits
        )


def _power_limits(device: Device, request: SearchRequest) -> tuple[PowerLimitControl | None, str]:
    """The control of a device's power limit where the request names some; or None and the reason."""
    return (None, "") if request.power_limits == "off" else open_power_limits(device)


def _replay_setup(
    device: "ReplayDevice", request: SearchRequest, gates: Sequence[TrialGate]
) -> MeasurementSetup:
    """A setup on which nothing runs: windows and sensor are those of the recording."""
    from tuner.search.replaying import (  # noqa: PLC0415 - most runs replay nothing
        ReplayMeasurer,
        measured_as,
        require_clocks,
        require_joules,
        require_power_limits,
        require_timing,
    )

    measured_options = (
        ("--sensor", request.sensor),
        ("--window", request.window_s),
        ("--scope", request.scope),
    )
    for option, value in measured_options:
        if value not in (None, GPU):
            raise InputError(f"{option} {value}: {device.spec} was measured already; leave the option out")
    if Objective(request.objective).needs_energy:
        require_joules(device.space, device.recording, request.objective)
    require_timing(device.space, request.timing)
    require_clocks(device.space, request.clocks)
    require_power_limits(device.space, request.power_limits)
    clocks, no_clocks = open_clocks(device)
    limits, no_limits = _power_limits(device, request)
    window_s = measured_as(device.space)["window_s"] or 0.0
    measurer = ReplayMeasurer(device, gates)
    return MeasurementSetup(device, measurer, clocks, no_clocks, None, window_s, (), limits, no_limits)
