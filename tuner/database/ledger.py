"""Kept beside runs: uses of answers, analytical answers, trained models, samples, what tuning cost."""

import json
import logging
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from tuner.database import decoding
from tuner.database.connection import Database
from tuner.database.decoding import NotUnderstood
from tuner.database.files import now
from tuner.database.integrity.checksums import verified
from tuner.database.transaction import Transaction
from tuner.model.records import canonical

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_NOTHING = 1e-6  # of a count: what rounding leaves of one that has faded


class Ledger:
    """Small things that outlive the daemon. What is not understood stays as it is, and is left out.

    Raises:
        StoreError: (any method) the database cannot be used; ``Database`` names the kinds.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._told: set[NotUnderstood] = set()

    def add_uses(self, uses: Mapping[str, float]) -> None:
        """Add to the counts of uses of answers, by key; all or none. A count that falls to nothing goes."""

        def change(transaction: Transaction) -> None:
            transaction.execute_many(
                "INSERT INTO uses (key, count) VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET count = count + excluded.count",
                list(uses.items()),
            )
            transaction.execute("DELETE FROM uses WHERE count < ?", (_NOTHING,))

        if uses:
            self._database.write(change)

    def uses(self) -> dict[str, float]:
        """All uses so far, by key."""
        statement = f"SELECT key, count FROM uses WHERE {verified('uses')} ORDER BY key"  # noqa: S608
        rows = self._database.read(lambda view: view.rows(statement))
        found = {key: self._known(decoding.amount("use of an answer", key, count)) for key, count in rows}
        return {key: amounts[0] for key, amounts in found.items() if amounts is not None}

    def remember_analytical(self, key: str, document: Mapping[str, Any]) -> None:
        """Keep an analytical answer; an earlier one of the same key is replaced."""
        text = canonical(document)
        self._database.write(
            lambda transaction: transaction.execute(
                "INSERT INTO analytical (key, document) VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET document = excluded.document",
                (key, text),
            )
        )

    def analytical(self) -> dict[str, dict[str, Any]]:
        """All analytical answers, by key."""
        statement = f"SELECT key, document FROM analytical WHERE {verified('analytical')} ORDER BY key"  # noqa: S608
        rows = self._database.read(lambda view: view.rows(statement))
        found = {key: self._known(decoding.analytical(key, text)) for key, text in rows}
        return {key: document for key, document in found.items() if document is not None}

    def analytical_answer(self, key: str) -> dict[str, Any] | None:
        """The analytical answer of a key; None without one."""
        statement = f"SELECT document FROM analytical WHERE key = ? AND {verified('analytical')}"  # noqa: S608
        row = self._database.read(lambda view: view.row(statement, (key,)))
        return None if row is None else self._known(decoding.analytical(key, row[0]))

    def forget_analytical(self, keys: Collection[str]) -> None:
        """Remove analytical answers by their keys."""
        self._database.write(
            lambda transaction: transaction.execute_many(
                "DELETE FROM analytical WHERE key = ?", [(key,) for key in keys]
            )
        )

    def remember_model(self, kernel: str, key: str, document: Mapping[str, Any]) -> None:
        """Keep a trained model of a kernel; an earlier one of the same key is replaced."""
        text = canonical(document)
        self._database.write(
            lambda transaction: transaction.execute(
                "INSERT INTO models (kernel, key, document) VALUES (?, ?, ?)"
                " ON CONFLICT (kernel, key) DO UPDATE SET document = excluded.document",
                (kernel, key, text),
            )
        )

    def models(self, kernel: str) -> list[dict[str, Any]]:
        """All trained models of a kernel."""
        statement = f"SELECT document FROM models WHERE kernel = ? AND {verified('models')} ORDER BY key"  # noqa: S608
        rows = self._database.read(lambda view: view.rows(statement, (kernel,)))
        found = (self._known(decoding.model(kernel, text)) for (text,) in rows)
        return [document for document in found if document is not None]

    def forget_model(self, kernel: str, key: str) -> None:
        """Remove a trained model."""
        self._database.write(
            lambda transaction: transaction.execute(
                "DELETE FROM models WHERE kernel = ? AND key = ?", (kernel, key)
            )
        )

    def add_sample(self, run_id: int, document: Mapping[str, Any]) -> None:
        """Keep what measuring the answer of a run again has given."""
        text = json.dumps(document, allow_nan=False)
        self._database.write(
            lambda transaction: transaction.execute(
                "INSERT INTO samples (run_id, at, document) VALUES (?, ?, ?)", (run_id, now(), text)
            )
        )

    def samples(self, run_id: int) -> list[dict[str, Any]]:
        """All samples of a run's answer, oldest first; ``at`` of each is when it was stored (UTC)."""
        statement = (
            "SELECT id, at, document FROM samples WHERE run_id = ?"  # noqa: S608 - constant text of this module
            f" AND {verified('samples')} ORDER BY id"
        )
        rows = self._database.read(lambda view: view.rows(statement, (run_id,)))
        return [one for row in rows if (one := self._known(decoding.sample(*row))) is not None]

    def spend(self, day: str, device_uuid: str, seconds: float, joules: float) -> None:
        """Add to what tuning has cost on a day (ISO 8601) on a GPU."""
        self._database.write(
            lambda transaction: transaction.execute(
                "INSERT INTO spending (day, device_uuid, seconds, joules) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (day, device_uuid) DO UPDATE"
                " SET seconds = seconds + excluded.seconds, joules = joules + excluded.joules",
                (day, device_uuid, seconds, joules),
            )
        )

    def spent(self, day: str, device_uuid: str) -> tuple[float, float]:
        """Seconds and joules that tuning has cost on a day on a GPU."""
        statement = (
            "SELECT seconds, joules FROM spending WHERE day = ? AND device_uuid = ?"  # noqa: S608
            f" AND {verified('spending')}"
        )
        row = self._database.read(lambda view: view.row(statement, (day, device_uuid)))
        found = None if row is None else self._known(decoding.amount("spending", day, *row))
        return (0.0, 0.0) if found is None else (found[0], found[1])

    def _known(self, found: T | NotUnderstood) -> T | None:
        """What is understood; of the rest, each is logged once."""
        if not isinstance(found, NotUnderstood):
            return found
        if found not in self._told:
            self._told.add(found)
            _LOG.warning("%s", found)
        return None
