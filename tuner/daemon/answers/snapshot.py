"""What is known and true now: everything that replies are made of."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.config.catalog import Catalog
from tuner.daemon.answers.index import Index
from tuner.daemon.backlog.changes import clock_reason
from tuner.daemon.backlog.sets import sets_on
from tuner.daemon.queue.job_specs import asks
from tuner.daemon.settings.tables import Settings
from tuner.database.answers import ANALYSIS_VERSION, StoredAnswer
from tuner.model import DeviceIdentity
from tuner.model.jobs import JobSpec


@dataclass(frozen=True)
class Present:
    """Everything a reply is made of; replaced as a whole when something of it changes.

    Attributes:
        catalog: the kernels.
        identities: device -> who it is; the first is the daemon's own choice.
        settings: of the daemon.
        index: stored answers.
        sources: kernel -> hash of its sources.
        searches: question -> order of the set of daemon.toml that asks it (``searches_of``).
        analytical: key (``analytical_key``) -> document of ``analysis``.
    """

    catalog: Catalog
    identities: Mapping[str, DeviceIdentity]
    settings: Settings
    index: Index
    sources: Mapping[str, str]
    searches: Mapping[str, JobSpec]
    analytical: Mapping[str, Mapping[str, Any]]

    def stale(self, known: StoredAnswer) -> list[str]:
        """Why a stored answer is stale now, whatever batches are asked for."""
        device = self.device(known)
        if device is None:
            return ["its GPU is not here"]
        return [*known.reasons(device, self.sources, {}), *self.doubts(known)]

    def device(self, known: StoredAnswer) -> DeviceIdentity | None:
        """The GPU that an answer would be given for: its own, else one of its model; None without either."""
        alike = [identity for identity in self.identities.values() if known.on(identity)]
        return min(alike, key=lambda identity: identity.uuid != known.uuid, default=None)

    def doubts(self, known: StoredAnswer) -> Iterable[str]:
        """Why an answer may not be served as it is, by the settings."""
        return filter(None, [clock_reason(known.clock_mhz, self.settings)])


def searches_of(settings: Settings, catalog: Catalog, devices: Iterable[str]) -> dict[str, JobSpec]:
    """The orders of the sets of daemon.toml, by the question (``asks``); of several, the first."""
    orders: dict[str, JobSpec] = {}
    for device in devices:
        for order in sets_on(device, settings, catalog).orders.values():
            orders.setdefault(asks(order), order)
    return orders


def is_current(key: str, sources: Collection[str]) -> bool:
    """True where an analytical answer is of sources there are now, and of this version."""
    *_, source, version = key.split(" | ")
    return source in sources and version == str(ANALYSIS_VERSION)
