"""``--objective pareto``: a run, what is stored of it, and the choice of a point."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from cli_process import SMALL, document, tuner

from tuner.daemon.answers import replies
from tuner.daemon.interface import Question
from tuner.model.errors import InputError

FRONT = ("scan-lf:N=64", "--device", "sim:h200", "--objective", "pareto", "--clocks", "345:1980:300")


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run for the front, and one for energy."""
    path = tmp_path_factory.mktemp("fronts") / "tuner.db"
    tuner("run", *FRONT, "--budget", "20", "--database", path, "--json", path.with_name("run.json"))
    tuner("run", *SMALL, "--budget", "3", "--database", path)
    return path


@pytest.fixture(scope="module")
def told(db: Path) -> Any:
    """The document that the run wrote."""
    return json.loads(db.with_name("run.json").read_text())


def test_a_stored_front_is_the_one_that_was_found(db: Path, told: Any) -> None:
    """Points are fastest first, with their intervals and clocks; the database gives them back unchanged."""
    front = told["front"]
    times, joules = ([point["trial"][key] for point in front] for key in ("time_s", "energy_j"))

    assert len(front) > 1
    assert times == sorted(times)
    assert joules == sorted(joules, reverse=True)
    assert len({point["trial"]["clock_mhz"] for point in front}) > 1
    assert all(point["trial"]["energy_j_uncertainty"] > 0 and point["trial"]["confirmed"] for point in front)
    assert told["best"] in [point["trial"] for point in front]
    assert document("show", "1", "--database", db)["front"] == front
    assert document("best", *FRONT[:5], "--database", db)["front"] == front


@pytest.mark.parametrize("within", ["0%", "3%", "1000%"])
def test_a_time_budget_chooses_a_point(db: Path, told: Any, within: str) -> None:
    """The point of least energy that is at most so much slower than the fastest: the same for all readers."""
    slowest_s = told["front"][0]["trial"]["time_s"] * (1 + float(within[:-1]) / 100)
    allowed = [point for point in told["front"] if point["trial"]["time_s"] <= slowest_s]
    wanted = min(allowed, key=lambda point: point["trial"]["energy_j"])
    words = ("--max-slowdown", within, "--database", db)

    shown = document("show", "1", *words)
    best = document("best", *FRONT[:5], *words)
    use = tuner("export", "1", *words).stderr

    assert shown["best"] == best["best"] == wanted["trial"]
    assert shown["workloads"][0]["best"] == wanted["parts"][0]
    assert shown["against_default"] == wanted["against_default"]
    saved = shown["default"]["energy_j"] * wanted["against_default"]["energy_saving"]
    assert shown["break_even"]["saving_per_run"] == pytest.approx(saved)
    assert f"at most {float(within[:-1]):g} % slower than the fastest" in tuner("show", "1", *words).stdout
    (configuration,) = wanted["trial"]["configurations"].values()
    assert f", {configuration['P']}, {configuration['L']}, {configuration['r']}, " in use  # of the template


def test_a_limit_without_a_run_points_to_the_front(db: Path) -> None:
    """The command that is named prints the point; other objectives are not what it is of."""
    asked = (*FRONT[:3], "--max-slowdown", "3%", "--database", db)
    found = tuner("best", *asked, "--objective", "energy")
    (hint,) = (line for line in found.stderr.splitlines() if line.startswith("run 1 has a front"))
    command = shlex.split(hint.partition("`tuner ")[2].removesuffix("`"))

    assert found.exit_code == 1
    assert "at most 3 % slower than the fastest" in tuner(*command).stdout
    assert "has a front" not in tuner("best", *asked, "--objective", "edp").stderr


def test_the_report_has_a_table_of_the_front(db: Path, told: Any) -> None:
    """On the terminal and on the page: each point with its number, labelled as modelled."""
    text = " ".join(tuner("show", "1", "--database", db).stdout.split())
    page = tuner("report", "1", "--output", "-", "--database", db).stdout
    title = (
        f"Pareto front of time and energy (modelled; {len(told['front'])} points, fastest first; ± is 95 %)"
    )

    assert title in text
    assert "the answer is the point of least energy × time" in text
    assert title in page
    assert "The Pareto front" in page


def test_a_run_without_a_front_has_no_point(db: Path) -> None:
    """Where a point of a front is wanted of another run, that is refused, and what has one is named."""
    for command in (("show", "2"), ("export", "2")):
        found = tuner(*command, "--max-slowdown", "5%", "--database", db)
        assert found.exit_code == 2
        assert "--max-slowdown 5%: chooses a point of a Pareto front" in found.stderr
        assert "tune with --objective pareto" in found.stderr
    assert tuner("export", "1", "--format", "t4", "--max-slowdown", "5%", "--database", db).exit_code == 2


def test_a_damaged_front_is_said(db: Path, told: Any, tmp_path: Path) -> None:
    """A file whose points lack what a run writes is refused by what is wrong, not by a traceback."""
    file = tmp_path / "run.json"
    file.write_text(json.dumps({**told, "front": [{"number": 1, "trial": {}}]}))
    for command in ("show", "export"):
        found = tuner(command, file, "--max-slowdown", "5%", "--database", db)
        assert found.exit_code == 2
        assert "not a document of `tuner run --json`: front[0].expanded is missing" in found.stderr


def test_a_daemon_serves_the_answer_and_refuses_a_choice() -> None:
    """Its answer to the objective is the point of least energy × time; another point is chosen elsewhere."""
    replies.check(Question(("scan-lf:N=64",), "pareto"))
    with pytest.raises(InputError, match="choose a point of it afterwards: `tuner show`, `tuner best`"):
        replies.check(Question(("scan-lf:N=64",), "pareto", max_slowdown=0.05))
