"""What is made from the published interface finds no answer that it does not publish."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.daemon.http.routes import published

REQUESTS = Path(__file__).with_name("schema_requests.py")


def test_every_answer_is_as_published(pytestconfig: pytest.Config) -> None:
    """All requests that schemathesis makes for each operation have answers as published.

    They are made in a process of its own: what schemathesis imports and prepares would take each worker of
    the tests 3 s of CPU while pytest collects.
    """
    plugins = ("-p", "schemathesis.pytest.plugin", "-p", "no:cacheprovider", "-p", "no:xdist")
    command = (sys.executable, "-m", "pytest", "-q", *plugins, "--suites", "none", REQUESTS)
    run = subprocess.run(command, cwd=pytestconfig.rootpath, capture_output=True, text=True, check=False)

    operations = sum(len(path) for path in json.loads(published())["paths"].values())
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{operations} passed" in run.stdout
