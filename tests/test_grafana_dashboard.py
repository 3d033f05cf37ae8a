"""The shipped Grafana dashboard: Grafana's own types know every key of it, and every panel has its place."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

DASHBOARD = json.loads(
    (Path(__file__).parent.parent / "systemd" / "grafana-dashboard.json").read_text("utf-8")
)
COLUMNS = 24
SECTIONS = [
    "Devices",
    "Jobs",
    "Answers",
    "Savings",
    "Daemon",
]  # those of the live page, and what only a scrape sees

needs_types = pytest.mark.skipif(sys.version_info < (3, 11), reason="Grafana's types need Python 3.11")


def unknown_keys(dashboard: dict[str, Any]) -> list[str]:
    """Paths of what Grafana's types do not give back: keys that they lack, values that they change."""
    register_default_plugins()
    return list(_lost(dashboard, json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard))), ""))


def _lost(sent: Any, back: Any, path: str) -> list[str]:
    if isinstance(sent, dict) and isinstance(back, dict):
        missing = [f"{path}.{key}" for key in sent if key not in back]
        return missing + [
            text for key in sent if key in back for text in _lost(sent[key], back[key], f"{path}.{key}")
        ]
    if isinstance(sent, list) and isinstance(back, list) and len(sent) == len(back):
        pairs = enumerate(zip(sent, back, strict=True))
        return [text for index, (one, other) in pairs for text in _lost(one, other, f"{path}[{index}]")]
    return [] if sent == back else [path]


@needs_types
def test_grafana_knows_every_key() -> None:
    """The dashboard comes back whole from the types that Grafana publishes for its dashboards and panels."""
    assert unknown_keys(DASHBOARD) == []


@needs_types
@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda board: board.update(timezones=""), ".timezones"),
        (lambda board: board["panels"][1].update(tittle="GPUs"), ".panels[1].tittle"),
        (
            lambda board: board["panels"][1]["targets"][0].update(expression=""),
            ".panels[1].targets[0].expression",
        ),
        (lambda board: board["panels"][3]["fieldConfig"]["defaults"].update(units="watt"), ".panels[3]"),
    ],
)
def test_a_key_that_grafana_lacks_is_noticed(change: Any, path: str) -> None:
    """The check above names a key that is misspelt, of the board, a panel, a query or a field."""
    board = copy.deepcopy(DASHBOARD)
    change(board)

    (found,) = unknown_keys(board)

    assert found.startswith(path)


def test_the_rows_are_the_sections_of_the_page() -> None:
    """Rows stand in the order of the sections, open, and no panel stands above the first."""
    rows = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]

    assert [row["title"] for row in rows] == SECTIONS
    assert not any(row["collapsed"] or row["panels"] for row in rows)
    assert DASHBOARD["panels"][0] is rows[0]


def test_every_panel_has_a_place_in_its_section() -> None:
    """Panels lie within Grafana's columns and below the row before them; a row is as wide as the board."""
    top = 0
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= COLUMNS, panel["title"]
        assert place["h"] > 0
        assert place["y"] >= top, panel["title"]
        if panel["type"] == "row":
            assert (place["x"], place["w"], place["h"]) == (0, COLUMNS, 1)
            top = place["y"] + 1


def test_every_panel_asks_the_chosen_source() -> None:
    """A panel has a title of its own, and queries with letters of their own to the chosen source."""
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    source = {"type": "prometheus", "uid": "${datasource}"}

    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        queries = panel["targets"]
        assert queries, panel["title"]
        assert len({query["refId"] for query in queries}) == len(queries), panel["title"]
        assert all(asked["datasource"] == source for asked in [panel, *queries]), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
