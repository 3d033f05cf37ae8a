"""Children that stand in for the one that compiles."""

import os
import time
from pathlib import Path
from typing import Any

from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.errors import EmptySpaceError

_FOREVER_S = 3600.0


class Refusing:
    """Has no answer."""

    def explain(self, workload: str, device: str, kernel_file: Path) -> dict[str, Any]:
        """Fail as an empty space does."""
        del device, kernel_file
        raise EmptySpaceError(f"{workload}: none of 5 configurations is left")


class Hanging:
    """Never answers."""

    def explain(self, workload: str, device: str, kernel_file: Path) -> dict[str, Any]:
        """Tell its process id to who reads the pipe beside the kernel file, then hang."""
        del workload, device
        (kernel_file.parent / "pid").write_text(str(os.getpid()))
        time.sleep(_FOREVER_S)
        return {}


class Telling:
    """Answers with what it was asked, and its priority."""

    def explain(self, workload: str, device: str, kernel_file: Path) -> dict[str, Any]:
        """The question, for the sources that are there now."""
        return {
            "configuration": None,
            "workload": workload,
            "device": device,
            "source": load_kernel_file(kernel_file).fingerprint,
        }
