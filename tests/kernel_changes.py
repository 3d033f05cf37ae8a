"""Whether this checkout changes the kernels or the machine they are tested on."""

import shutil
import subprocess
from pathlib import Path

BRANCHES = (
    "upstream/main",
    "origin/main",
    "main",
)  # the first that is known is what a change is held against
WATCHED = (
    "kernels",
    "tests/kernels",
    "tests/host",
    "tests/host_*.py",
    "tests/linalg_scales.py",
    "tests/pairwise.py",
)


def kernels_changed(root: Path) -> bool:
    """Whether a watched file differs from where the branch left main; on main, from the commit before.

    What is not committed counts. Where that cannot be told, as without git or a main branch, it may.
    """
    git = shutil.which("git")
    if git is None:
        return True

    def lines(*words: str) -> list[str] | None:
        done = subprocess.run([git, *words], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.splitlines() if done.returncode == 0 else None

    head = lines("rev-parse", "HEAD")
    base = next((found for branch in BRANCHES if (found := lines("merge-base", "HEAD", branch))), None)
    if head == base:
        base = lines("rev-parse", "HEAD^")
    if base is None:
        return True
    changed = lines("diff", "--name-only", base[0], "--", *WATCHED)
    untracked = lines("ls-files", "--others", "--exclude-standard", "--", *WATCHED)
    return changed is None or untracked is None or bool(changed or untracked)
