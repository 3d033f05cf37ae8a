"""The OpenAPI document: ``python -m tuner.daemon.api.published > docs/openapi.json``."""

import json
import sys
from typing import cast

from tuner.daemon.api.app import application
from tuner.daemon.desk import Desk
from tuner.daemon.settings.tables import LimitsTable, TuningTable


def published() -> str:
    """The document as it is committed; nobody is asked for it, so it needs no desk."""
    app = application(cast("Desk", None), LimitsTable(), TuningTable())
    return json.dumps(app.openapi(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(published())
