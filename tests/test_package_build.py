"""Which tuner this is, and that a run says which one measured it."""

import subprocess
import sys
from pathlib import Path

from cli_process import SMALL, tuner

from tuner.database.runs import Store
from tuner.kernel_files.source_folder import PackageBuild, content_of, decisive_files, own_build
from tuner.model.records import PROTOCOL, binding, fingerprint
from tuner.model.version import VERSION


def test_content_is_of_every_file_that_decides_numbers(tmp_path: Path) -> None:
    """Python, CUDA and tables of all rooms count: one byte or another name is another content."""
    found = decisive_files()
    for name in ("pool/pool.py", "power/__init__.py", "policies/surrogate/beliefs.json"):
        assert name in found
    assert {Path(name).suffix for name in found} == {".py", ".cu", ".cuh", ".toml", ".csv", ".json"}
    assert own_build() == PackageBuild(VERSION, PROTOCOL, content_of(found))
    changed = tmp_path / "greedy.py"
    changed.write_bytes(found["policies/greedy.py"].read_bytes() + b" ")
    others = (
        {**found, "policies/greedy.py": changed},
        {("policies/other.py" if name == "policies/greedy.py" else name): at for name, at in found.items()},
        {name: path for name, path in found.items() if name != "policies/greedy.py"},
    )
    assert len({own_build().content, *map(content_of, others)}) == 4


def test_a_run_says_which_package_measured_it(tmp_path: Path) -> None:
    """The content is stored with the conditions; it binds nothing, so that a run goes on after a release."""
    database = tmp_path / "a.db"
    for resume, budget in (((), "1"), (("--resume",), "2")):
        words = ("--policy", "random", "--objective", "time", "--budget", budget, *resume)
        assert tuner("run", *SMALL, *words, "--database", database).exit_code == 0
    with Store(database) as store:
        conditions = store.history()[0].conditions
    assert conditions["content"] == own_build().content
    other = {**conditions, "content": "0" * 64}
    assert fingerprint(other) == fingerprint(binding(conditions))
    assert fingerprint({**conditions, "protocol": 0}) != fingerprint(conditions)


def test_help_reads_no_package() -> None:
    """What is asked for without a run does not take the time of hashing."""
    code = (
        "import sys; from tuner.cli.main import main; main(['run', '--help'], standalone_mode=False);"
        " from tuner.kernel_files import source_folder as own; assert not own.own_build.cache_info().currsize"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
