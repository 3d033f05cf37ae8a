"""Command lines that are refused, by a table: messages, exit codes, and nothing done."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import rows, tuner
from fake_nvml_state import fake_nvml, script, sensors_of_h200
from small_spaces import space

from tuner.recordings.files import write
from tuner.system.untrusted.reading import load_toml

TABLE = load_toml((Path(__file__).parent / "data" / "refusals.toml").read_text("utf-8"))
CASES = [
    pytest.param(f"{one['command']} {line}", says, one.get("code", 2), id=f"{one['command']} {line}".strip())
    for one in TABLE["refused"]
    for line, says in one["says"].items()
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's folder, on a machine with an idle H200 whose driver is not CUDA's."""
    path, home = tmp_path_factory.mktemp("refused"), tmp_path_factory.mktemp("home")
    spaces = [
        space(["scan:N=1"], [3.0, 2.0, 1.0, 4.0]),
        space(["scan:N=2"], [1.0, 2.0, 3.0, None], joules=10.0),
        space(["fft:N=1"], [None, None]),
    ]
    write(path / "hand.zip", spaces)
    (path / "other.json").write_text('{"a": 1}')
    (path / "broken.json").write_text('{"a": ')
    with pytest.MonkeyPatch.context() as patch, fake_nvml(home) as state:
        script(state, (0.0, 120.0))
        sensors_of_h200(state)
        patch.chdir(path)
        patch.setattr("tuner.devices.cuda.probe.driver_problem", lambda: "no driver (a test)")
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        for name in ("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
            patch.setenv(name, str(home))
        yield path
        assert state.sets + state.resets + state.app_sets + state.app_resets == 0


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where databases and calibrations go that nobody places elsewhere."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("line", "says", "code"), CASES)
def test_it_is_refused(folder: Path, state: Path, line: str, says: str | list[str], code: int) -> None:
    """The message names what is wrong and what would be right; no file is written, and no run stored."""
    before = sorted(folder.iterdir())
    result = tuner(*shlex.split(line))

    assert result.exit_code == code, result.output
    for part in [says] if isinstance(says, str) else says:
        assert part in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert sorted(folder.iterdir()) == before
    assert not list(state.rglob("sensors.json"))
    assert all(rows(path, "runs") == 0 for path in state.rglob("*.db"))
