"""``benchmarks/damage.py`` in small: no damage is served as sound, and nothing that is left is lost."""

import random
from collections import Counter
from pathlib import Path

import damage_scene
import pytest
from damage_files import KINDS, Row, damaged, had
from damage_scene import Scene, attempt, scene


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """A database whose last transactions are in its logs alone."""
    return scene(tmp_path_factory.mktemp("damage") / "scene", logs=True)


def test_every_row_is_found_in_the_files(written: Scene) -> None:
    """The reader of SQLite's format sees the rows that are served, in both copies."""
    tables = Counter(row[0] for row in written.places["main"])

    assert tables == Counter(row[0] for row in written.places["mirror"])
    assert (tables["runs"], tables["trials"], tables["jobs"]) == (24, 96, 24)
    assert had(written.places["main"], written.files, written.files) == written.places["main"].keys()


def test_each_kind_changes_the_files(written: Scene) -> None:
    """A damage is one."""
    for kind in KINDS:
        rng = random.Random(kind)  # noqa: S311 - no secrets
        changed = (damaged(written.files, written.old, kind, "both", rng) for _ in range(5))
        assert any(files != written.files for files in changed), kind


@pytest.mark.parametrize(("kind", "target"), [("bits", "both"), ("text", "same"), ("emptied", "both")])
def test_no_damage_is_served(written: Scene, tmp_path: Path, kind: str, target: str) -> None:
    """Nothing is wrong, lost, refused or raised."""
    rng = random.Random(f"{kind} {target}")  # noqa: S311 - no secrets
    outcome = attempt(written, tmp_path / "damaged", rng, kind, target)

    assert not outcome.bad, outcome


def test_what_is_wrong_is_seen(written: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one digit of a run is served as another, or a row is left out, the outcome is bad."""
    row, lost = ("runs", 3), ("trials", 2, 4)
    served = damage_scene._served

    def altered(path: Path) -> tuple[dict[Row, str], list[str], int]:
        found, told, aside = served(path)
        found[row] = found[row].replace("'r': 2", "'r': 4")
        del found[lost]
        return found, told, aside

    monkeypatch.setattr(damage_scene, "_served", altered)
    outcome = attempt(written, tmp_path / "damaged", random.Random(0), "removed", "mirror")  # noqa: S311

    assert [one.partition(":")[0] for one in outcome.wrong] == ["('runs', 3)"]
    assert outcome.lost == ["('trials', 2, 4)"]
