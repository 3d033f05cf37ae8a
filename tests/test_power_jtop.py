"""jtop through a fake package: its rails, what stays in the child, and reasons for not using it."""

import itertools
import json
import multiprocessing
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampler_rigs import collected
from tuner.power.base import Reading, Response
from tuner.power.sensors.jtop import parse_line, readings

from tuner.model.errors import PowerError, SensorUnavailableError

FAKE = """
import multiprocessing
multiprocessing.set_start_method("fork")

class JtopException(Exception):
    pass

class jtop:
    def __init__(self, interval=1.0):
        self.count = 0
        self.interval = interval
    def __enter__(self):
        {enter}
        return self
    def __exit__(self, *error):
        pass
    def ok(self):
        self.count += 1
        {ok}
    @property
    def power(self):
        {power}
"""
XAVIER_NX = (
    "return {'rail': {'VDD_CPU_GPU_CV': {'power': 700 + self.count, 'avg': 1, 'volt': 4960},"
    " 'VDD_SOC': {'power': 1353, 'avg': 1353}},"
    " 'tot': {'power': 4000 + self.count, 'avg': 2, 'name': 'VDD_IN'}}"
)
FOREVER = "import time; time.sleep(0.001); return True"

Fake = Callable[..., list[Reading]]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """Readings with a fake package on the child's path and a socket that is there."""
    package = tmp_path / "packages/jtop"
    package.mkdir(parents=True)
    socket = tmp_path / "jtop.sock"
    socket.touch()

    def found(
        power: str = XAVIER_NX, *, ok: str = FOREVER, enter: str = "pass", **options: Any
    ) -> list[Reading]:
        (package / "__init__.py").write_text(FAKE.format(power=power, ok=ok, enter=enter))
        options = {"path": [str(package.parent), *sys.path], "socket": socket, **options}
        result: list[Reading] = readings(0, responses=lambda _: None, **options)
        return result

    return found


def reason(offered: list[Reading]) -> str:
    (reading,) = offered
    assert reading.name == "jtop"
    with pytest.raises(SensorUnavailableError) as caught:
        reading.open()
    return str(caught.value)


def test_rails_come_in_watts(fake: Fake) -> None:
    """The total first, under its own name; present power, never the average; one sample per update."""
    offered = fake()
    sampler = offered[0].open()
    samples = collected(sampler, 3)
    sampler.close()

    assert [reading.name for reading in offered] == ["jtop:VDD_IN", "jtop:VDD_CPU_GPU_CV", "jtop:VDD_SOC"]
    steps_mw = [round((b.value - a.value) * 1000) for a, b in itertools.pairwise(samples)]
    assert set(steps_mw) == {1}
    assert 4.0 < samples[0].value < 5.0
    assert (sampler.info.scope, sampler.info.kind) == ("VDD_IN (total input)", "stream")
    assert sampler.info.response == Response("boxcar", window_s=0.5, averages=False)


def test_the_package_stays_in_the_child(fake: Fake) -> None:
    """This process neither imports jtop nor has its way of starting others changed."""
    before = multiprocessing.get_start_method(allow_none=True)

    fake()[0].open().close()

    assert "jtop" not in sys.modules
    assert multiprocessing.get_start_method(allow_none=True) == before


def test_listing_is_instant_and_imports_nothing_elsewhere() -> None:
    """On a machine without the package, asking starts no process and loads nothing of it."""
    code = (
        "import subprocess, sys\n"
        "def refuse(*a, **k): raise AssertionError('a process was started')\n"
        "subprocess.Popen = refuse\n"
        "from tuner.power.sensors.jtop import readings\n"
        "print(readings(0, responses=lambda _: None, path=['/nowhere'])[0].name, 'jtop' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.split() == ["jtop", "False"]


def test_a_missing_package_is_told(fake: Fake, tmp_path: Path) -> None:
    """Where jetson-stats is not installed the reason says how it is."""
    assert reason(fake(path=[str(tmp_path)])) == (
        "jetson-stats is not installed: pip install 'gpu-tuner[jetson]', on a Jetson"
    )


def test_an_inactive_service_is_told(fake: Fake, tmp_path: Path) -> None:
    """Without the socket no client is started, and the reason says how to start the service."""
    gone = tmp_path / "gone.sock"

    assert reason(fake(enter="raise AssertionError('started')", socket=gone)) == (
        f"the jtop service is not active ({gone} is not there): sudo systemctl start jtop"
    )


def test_missing_permission_is_told(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user outside the group of the service is told which group that is."""
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert "jtop.sock: no permission: sudo usermod -aG jtop $USER" in reason(fake())


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            {"enter": "raise JtopException('Mismatch version jtop service: [4.2.0] and client: [4.3.1]')"},
            "jtop ended with exit status 1, saying: JtopException: Mismatch version jtop service",
        ),
        (
            {"enter": "raise PermissionError(13, 'Permission denied')"},
            "saying: PermissionError: .*Permission denied",
        ),
        ({"enter": "import os; os._exit(9)"}, "jtop ended with exit status 9"),
        ({"ok": "return False"}, "saying: the jtop service has ended the connection"),
        ({"power": "return 5.0, {}"}, "saying: TypeError: jetson-stats before 4.2 .*install -U jetson-stats"),
        (
            {"power": "return {'rail': {}, 'tot': {}}", "ok": "return self.count < 3"},
            "has ended the connection",
        ),
    ],
)
def test_what_the_client_says_is_the_reason(fake: Fake, parts: dict[str, str], said: str) -> None:
    """Version mismatch, refusal, crash, and an end of the service come with the client's own words."""
    assert re.search(said, reason(fake(**parts)))


def test_a_package_that_cannot_be_imported_is_told(fake: Fake) -> None:
    """A broken installation is a reason like any other."""
    assert "saying: JtopException: broken" in reason(fake(power="pass\nraise JtopException('broken')"))


def test_a_service_that_ends_in_use_is_a_power_error(fake: Fake, tmp_path: Path) -> None:
    """When the service goes, polling says so."""
    go = tmp_path / "go"
    go.touch()
    offered = fake(ok=f"import os; return os.path.exists({str(go)!r})")
    sampler = offered[0].open()
    collected(sampler, 1)
    go.unlink()

    with pytest.raises(
        PowerError, match=r"jtop:VDD_IN: jtop ended .*the jtop service has ended the connection"
    ):
        collected(sampler, 10**9)
    sampler.close()


def line(rails: dict[str, Any], total: Any = None, name: Any = None) -> str:
    return json.dumps({"rails": rails, "total": total, "total_name": name})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (line({"GPU": 100, "CPU": 200, "NC": 0}, 300, "ALL"), {"GPU": 0.1, "CPU": 0.2}),
        (line({"GPU": 100, "CPU": 200}, 300), {"GPU": 0.1, "CPU": 0.2}),
        (line({"GPU": 100, "CPU": 200}, 301.5), {"GPU": 0.1, "CPU": 0.2}),
        (line({"GPU": 100, "CPU": 200}, 900), {"GPU": 0.1, "CPU": 0.2, "TOTAL": 0.9}),
        (line({"VDD_IN": 900, "GPU": 100}, 900, "VDD_IN"), {"VDD_IN": 0.9, "GPU": 0.1}),
        (line({"GPU": 100}, 900, "VDD_IN"), {"GPU": 0.1, "VDD_IN": 0.9}),
        (line({"VDD_GPU": -400, "A": None, "B": "5", "C": True}), {"VDD_GPU": -0.4}),
        (line({"A": float("nan"), "B": float("inf")}), {}),
        ("Traceback (most recent call last):", {}),
        ('{"rails": 3}', {}),
        ('{"rails": {}}', {}),
        ("[" * 100_000, {}),
        ("null", {}),
    ],
)
def test_rails_and_total_of_a_line(text: str, expected: dict[str, float]) -> None:
    """A total that was measured is a rail; one that was added up is left to us to add up and to name."""
    assert parse_line(text) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON | st.fixed_dictionaries({"rails": JSON, "total": JSON, "total_name": JSON}))
def test_any_line_can_be_read(message: Any) -> None:
    """Whatever another version of the service may say, the parser finds finite watts or nothing."""
    rails = parse_line(json.dumps(message))

    assert all(abs(watts) < float("inf") for watts in rails.values())
