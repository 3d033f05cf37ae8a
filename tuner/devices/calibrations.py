"""Where calibrations of power sensors are kept, and those of a device."""

from collections.abc import Callable
from pathlib import Path

import platformdirs

from tuner import registry
from tuner.interfaces import Response
from tuner.model import DeviceIdentity

SYSTEM_FILE = Path("/var/lib/tuner/sensors.json")  # an administrator's, for all users


def user_file() -> Path:
    """The file that ``tuner power calibrate`` writes."""
    return platformdirs.user_state_path("tuner") / "sensors.json"


def calibrated(identity: DeviceIdentity, *files: Path) -> Callable[[str], Response | None]:
    """The calibrated response of a device's readings by their name; None where there is none.

    Args:
        identity: of the device; a calibration is that of one GPU under one driver.
        files: where calibrations are kept, the first that knows a reading counts; the user's and then the
            system's if none are given.

    Raises:
        StoreError: a file is damaged; it is named.
    """
    known: dict[str, Response] = {}
    for path in reversed(files or (user_file(), SYSTEM_FILE)):
        known |= registry.load("calibration", "load")(path, identity.uuid, identity.driver)
    return known.get
