"""What is so at present: settings, kernels, devices; parts of the daemon look here each time."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tuner.config.catalog import Catalog
from tuner.daemon.devices.admission import local_zone
from tuner.daemon.settings.tables import Settings
from tuner.model import DeviceIdentity


def local_now() -> datetime:
    """The local time with its zone, summer time and all."""
    return datetime.now(local_zone())


@dataclass
class Situation:
    """Changes when files are read again, or devices asked again.

    Attributes:
        settings: of daemon.toml.
        directories: trusted folders of kernel files beside those shipped.
        catalog: of the kernels that may be named.
        identities: devices that are tuned on, the first first.
        troubles: what is wrong, for people, by what it concerns.
        notices: what is not wrong, and yet to be known.
        places: of the socket, the state, the settings and the TCP port, for people.
    """

    settings: Settings
    catalog: Catalog
    identities: dict[str, DeviceIdentity]
    directories: tuple[Path, ...] = ()
    troubles: dict[str, list[str]] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    places: dict[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> list[str]:
        """As they are named."""
        return list(self.identities)

    def uuid(self, device: str) -> str:
        """Of a device."""
        return self.identities[device].uuid
