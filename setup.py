"""Names the commit in the version of a build, unless it has a tag: 0.2.0+2843.g728483b0 follows 0.2.0."""

import re
import runpy
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
FILE = "tuner/model/version.py"
LINE = re.compile(r'^VERSION = "(.*?)"', re.MULTILINE)


def git(*words: str) -> str:
    """What git says of the checkout; empty where there is none, or git may not be asked."""
    try:
        return subprocess.run(
            ["git", "-C", ROOT, *words], check=True, capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def version() -> str:
    """The version of this build."""
    own = LINE.search((ROOT / FILE).read_text())[1]
    tags = git("tag", "--points-at", "HEAD", "v*")
    if tags and tags != f"v{own}":
        raise SystemExit(f"the commit has the tag {tags}, and {FILE} says {own}: one of both is wrong")
    changed = bool(git("diff", "--name-only", "HEAD"))
    if not (ROOT / ".git").exists() or (tags and not changed):
        return own
    commit = git("rev-parse", "--short=8", "HEAD")
    if not commit:
        return runpy.run_path(str(ROOT / FILE))["VERSION"]
    return f"{own}+{git('rev-list', '--count', 'HEAD')}.g{commit}{'.changed' if changed else ''}"


VERSION = version()


class BuildPy(build_py):
    """Writes the version into what is installed, which has no checkout to ask."""

    def run(self) -> None:
        """Build, then write."""
        super().run()
        if not self.editable_mode:
            built = Path(self.build_lib, FILE)
            built.write_text(LINE.sub(f'VERSION = "{VERSION}"', built.read_text(), count=1))


setup(version=VERSION, cmdclass={"build_py": BuildPy})
