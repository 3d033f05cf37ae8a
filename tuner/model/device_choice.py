"""Which devices a job may run on: one by name, those of a kind, or any."""

import functools
from dataclasses import dataclass

from tuner.model.device import DeviceIdentity

ANY = "any"
"""In a file, where an empty text would say the same less clearly."""

_KIND = "kind:"


@dataclass(frozen=True)
class DeviceChoice:
    """A choice of devices, as ``--device`` of ``tuner submit`` takes it.

    Attributes:
        device: by its name, e.g. ``cuda:0``; empty for any of the kind.
        model: product name of the GPU; empty for any.
        driver: version of the driver; empty for any.
    """

    device: str = ""
    model: str = ""
    driver: str = ""

    @classmethod
    @functools.lru_cache(maxsize=1024)
    def parse(cls, text: str) -> "DeviceChoice":
        """The choice of a text: ``cuda:0``, ``kind:NVIDIA H200``, ``kind:NVIDIA H200@580.159`` or ``any``."""
        if text in ("", ANY):
            return cls()
        if not text.startswith(_KIND):
            return cls(device=text)
        model, _, driver = text.removeprefix(_KIND).partition("@")
        return cls(model=model.strip(), driver=driver.strip())

    @property
    def one(self) -> bool:
        """True where it names one device."""
        return bool(self.device)

    def allows(self, identity: DeviceIdentity) -> bool:
        """True for a device that it means."""
        if self.device:
            return self.device == identity.spec
        return self.model in ("", identity.name) and self.driver in ("", identity.driver)

    def __str__(self) -> str:
        if self.one or not self.model:
            return self.device
        return f"{_KIND}{self.model}{f'@{self.driver}' if self.driver else ''}"

    @property
    def words(self) -> str:
        """For people."""
        if self.device:
            return f"device {self.device}"
        driver = f" with driver {self.driver}" if self.driver else ""
        return f"GPU of the kind {self.model}{driver}" if self.model else "device"


def wrong_choice(text: str) -> str:
    """What is wrong in a choice that names a kind; empty where nothing is, and for other choices."""
    if not text.startswith(_KIND):
        return ""
    choice = DeviceChoice.parse(text)
    if choice.model and (choice.driver or "@" not in text):
        return ""
    return f"{text!r} names no kind; write kind:MODEL or kind:MODEL@DRIVER, e.g. 'kind:NVIDIA H200'"


def same_kind(one: DeviceIdentity, other: DeviceIdentity) -> bool:
    """True for GPUs of one model with one driver and one compiler, both real or both modelled."""
    return (one.name, one.driver, one.runtime, one.modelled) == (
        other.name,
        other.driver,
        other.runtime,
        other.modelled,
    )
