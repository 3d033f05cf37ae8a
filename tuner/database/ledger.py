"""Records beside runs: uses of answers, analytical answers, trained models, samples, costs."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from tuner.database import decoding
from tuner.database.connection import Database
from tuner.database.decoding import UnderstoodRows
from tuner.database.files import now
from tuner.database.integrity.checksums import verified
from tuner.database.transaction import Transaction
from tuner.model.run_document import AnalyticalDocument, SampleDocument
from tuner.model.typed import canonical

_NOTHING = 1e-6  # of a count: what rounding leaves of one that has faded


class Ledger:
    """Small things that outlive the daemon. What is not understood stays as it is, and is left out.

    Raises:
        StoreError: (any method) the database cannot be used; ``Database`` names the kinds.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._understood = UnderstoodRows()

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
        return {
            key: uses
            for key, count in rows
            for (uses,) in self._understood.of([decoding.amount("use of an answer", key, count)])
        }

    def remember_analytical(self, key: str, document: AnalyticalDocument) -> None:
        """Keep an analytical answer; an earlier one of the same key is replaced."""
        text = canonical(document)
        self._database.write(
            lambda transaction: transaction.execute(
                "INSERT INTO analytical (key, document) VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET document = excluded.document",
                (key, text),
            )
        )

    def analytical(self) -> dict[str, AnalyticalDocument]:
        """All analytical answers, by key."""
        statement = f"SELECT key, document FROM analytical WHERE {verified('analytical')} ORDER BY key"  # noqa: S608
        rows = self._database.read(lambda view: view.rows(statement))
        return {
            key: document
            for key, text in rows
            for document in self._understood.of([decoding.analytical(key, text)])
        }

    def analytical_answer(self, key: str) -> AnalyticalDocument | None:
        """The analytical answer of a key; None without one."""
        statement = f"SELECT document FROM analytical WHERE key = ? AND {verified('analytical')}"  # noqa: S608
        rows = self._database.read(lambda view: view.rows(statement, (key,)))
        answers = self._understood.of(decoding.analytical(key, text) for (text,) in rows)
        return answers[0] if answers else None

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
        return self._understood.of(decoding.model(kernel, text) for (text,) in rows)

    def add_sample(self, run_id: int, document: SampleDocument) -> None:
        """Keep what measuring the answer of a run again has given."""
        text = json.dumps(document, allow_nan=False)
        self._database.write(
            lambda transaction: transaction.execute(
                "INSERT INTO samples (run_id, at, document) VALUES (?, ?, ?)", (run_id, now(), text)
            )
        )

    def samples(self, run_id: int) -> list[SampleDocument]:
        """All samples of a run's answer, oldest first; ``at`` of each is when it was stored (UTC)."""
        statement = (
            "SELECT id, at, document FROM samples WHERE run_id = ?"  # noqa: S608 - constant text of this module
            f" AND {verified('samples')} ORDER BY id"
        )
        rows = self._database.read(lambda view: view.rows(statement, (run_id,)))
        return self._understood.of(decoding.sample(*row) for row in rows)

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
        rows = self._database.read(lambda view: view.rows(statement, (day, device_uuid)))
        amounts = self._understood.of(decoding.amount("spending", day, *row) for row in rows)
        seconds, joules = amounts[0] if amounts else (0.0, 0.0)
        return seconds, joules
