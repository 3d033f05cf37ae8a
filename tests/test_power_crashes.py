"""A death at every single line of setting and restoring a clock."""

import subprocess
import sys
from pathlib import Path

import clock_deaths


def test_a_death_at_any_line_leaves_no_clock_set(tmp_path: Path) -> None:
    """Wherever a process dies that sets and restores a clock, the next start finds the way back."""
    done = subprocess.run(
        [sys.executable, clock_deaths.__file__, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
