"""The schema of a search's options, seen everywhere in a form that each place takes; choices by name."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tuner.cli.main import main
from tuner.model import registry
from tuner.model.errors import UnknownNameError
from tuner.model.jobs import JobSpec
from tuner.model.options import JOB_OPTIONS, LIMITS, METHODS, OPTIONS, Range, Switch, Text
from tuner.search.option_checks import job_options
from tuner.search.request import SearchRequest

SCRIPT = Path(__file__).parent / "option_sightings.py"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Where one added field is seen."""
    command = [sys.executable, str(SCRIPT), str(tmp_path_factory.mktemp("added"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_added_option_is_on_the_command_line(seen: Any) -> None:
    """`tuner run` and `tuner submit` have it, with its range, and a default where no daemon chooses."""
    found = seen["command line"]

    assert "--passes INTEGER RANGE" in found["run --help"]
    assert "Passes over a space.  [default: 2; 1<=x<=9]" in " ".join(found["run --help"].split(" " * 26))
    assert "--passes INTEGER RANGE" in found["submit --help"]
    assert "default: 2" not in found["submit --help"]
    assert "Invalid value for '--passes': 10 is not in the range 1<=x<=9." in found["refusal"]


def test_an_added_option_reaches_the_search(seen: Any) -> None:
    """The request has its default, the word of the command line, and the option of a job."""
    assert seen["command line"]["requests"] == [2, 7]
    assert seen["interface"]["request"] == 5
    assert seen["settings"]["request"] == 4


def test_an_added_option_is_in_the_interface(seen: Any) -> None:
    """The OpenAPI document has its bounds and help, and a wrong value is refused by name."""
    found = seen["interface"]

    assert found["openapi"]["description"] == "Passes over a space."
    assert found["openapi"]["anyOf"] == [{"type": "integer", "minimum": 1, "maximum": 9}, {"type": "null"}]
    assert found["refusal"] == "options.passes: must be at least 1"
    assert seen["job"] == "passes: 12: write a whole number from 1 to 9"


def test_an_added_option_is_in_the_settings(seen: Any) -> None:
    """daemon.toml takes it in the table that was declared, with its default, bounds and help."""
    found = seen["settings"]

    assert found["schema"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "default": 2,
        "description": "Passes over a space.",
        "title": "Passes",
    }
    why = "[tuning] passes: 0 is out of range; must be at least 1 (line 2)"
    assert found["refusal"].endswith(f"daemon.toml: {why}")


def test_every_option_is_on_the_command_line_by_its_flag() -> None:
    """`tuner run` has all options, `tuner submit` those of jobs, and a request takes each by its name."""
    of_jobs = {name: option for name, option in OPTIONS.items() if name not in ("power_limits", "solo_bests")}
    for command, options in (("run", OPTIONS), ("submit", of_jobs)):
        group = main.get_command(None, command)  # type: ignore[arg-type]  # no context is needed
        assert group is not None
        flags = {parameter.name: parameter.opts for parameter in group.params}
        assert {name: flags.get(name) for name in options} == {n: [o.flag] for n, o in options.items()}
        assert all((name in flags) == (name in options) for name in ("power_limits", "solo_bests"))
    defaults = {name: getattr(SearchRequest(), name) for name in OPTIONS}
    assert defaults == {n: o.default for n, o in OPTIONS.items()}


def test_defaults_have_the_declared_form() -> None:
    """No default would be refused, and what a job carries has a form to be held against."""
    assert [name for name, option in JOB_OPTIONS.items() if option.form is None] == []
    assert [n for n, o in OPTIONS.items() if o.default is not None and not o.holds(o.default)] == []


def test_what_options_do_is_declared() -> None:
    """Limits end a search, methods change how is measured, and a job lacks some options."""
    assert {"budget", "time_limit_s", "patience", "runs_per_day", "pay_back_days"} == LIMITS
    assert {"seed", "sensor", "window_s", "joules", "solo_bests", "verify"} == METHODS
    of_runs = {"power_limits", "solo_bests"}
    assert set(OPTIONS) - set(JOB_OPTIONS) == {"objective", "policy", "clocks", *of_runs}


@pytest.mark.parametrize(
    ("form", "right", "wrong", "words"),
    [
        (Range(1, 9, whole=True), (1, 9), (0, 10, 2.0, True, "3", None), "a whole number from 1 to 9"),
        (Range(0, 5, above=True), (5, 0.1), (0, 5.1, float("nan")), "a number above 0 and at most 5"),
        (Range(0, 2, share=True), (0, 2.0), (-0.1, float("inf")), "a fraction from 0 to 2 (200%)"),
        (Switch(), (True, False), (1, 0, "yes", None), "true or false"),
        (Text("[a-z]+", 3, "small letters"), ("abc",), ("", "abcd", "a\n", 3), "small letters"),
    ],
)
def test_forms_take_what_they_say(
    form: Range | Text | Switch, right: tuple[object, ...], wrong: tuple[object, ...], words: str
) -> None:
    """A value is in the form or not, and the form says of itself what is right."""
    assert all(map(form.holds, right))
    assert not any(map(form.holds, wrong))
    assert str(form) == words


def test_a_job_names_its_objective_once() -> None:
    """What a job names itself cannot come again among its options."""
    assert job_options(JobSpec(("fft:N=4",), options={"seed": 3}))["seed"] == 3
    with pytest.raises(ValueError, match="unknown option 'objective'"):
        job_options(JobSpec(("fft:N=4",), options={"objective": "time"}))


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in registry.TABLE for name in registry.names(kind)]
)
def test_every_name_loads(kind: str, name: str) -> None:
    """Each entry of the table can be imported (a typo in a string fails here, not at a user's)."""
    assert callable(registry.load(kind, name))


def test_unknown_name_lists_the_choices() -> None:
    """A wrong name is answered with the right ones."""
    with pytest.raises(UnknownNameError, match="choose from exhaustive, random, greedy"):
        registry.load("policy", "gredy")
