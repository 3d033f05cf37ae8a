"""``benchmarks/damage.py`` in small: no damage is served as sound, and nothing that is left is lost."""

import random
from collections import Counter
from pathlib import Path

import pytest
from damage_files import KINDS, damaged, had
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


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_changes_the_files(written: Scene, kind: str) -> None:
    """A damage is one."""
    rng = random.Random(kind)  # noqa: S311 - no secrets

    assert any(damaged(written.files, written.old, kind, "both", rng) != written.files for _ in range(5))


@pytest.mark.parametrize(("kind", "target"), [("bits", "both"), ("text", "same"), ("emptied", "both")])
def test_no_damage_is_served(written: Scene, tmp_path: Path, kind: str, target: str) -> None:
    """Nothing is wrong, lost, refused or raised."""
    rng = random.Random(f"{kind} {target}")  # noqa: S311 - no secrets
    outcome = attempt(written, tmp_path / "damaged", rng, kind, target)

    assert not outcome.bad, outcome
