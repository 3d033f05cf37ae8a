"""Children that stand in for the one that compiles; they import next to nothing."""

import importlib
import os
import time
from pathlib import Path
from typing import Any

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
    """Answers with what it was asked, for the sources that ``TOLD_SOURCE`` in the environment names."""

    def explain(self, workload: str, device: str, kernel_file: Path) -> dict[str, Any]:
        """The question."""
        del kernel_file
        source = os.environ["TOLD_SOURCE"]
        return {"configuration": None, "workload": workload, "device": device, "source": source}


class Reading:
    """Answers for the sources that are there now."""

    def explain(self, workload: str, device: str, kernel_file: Path) -> dict[str, Any]:
        """Read the kernel file."""
        del workload, device
        kernel = importlib.import_module("tuner.kernel_files.catalog").load_kernel_file(kernel_file)
        return {"configuration": None, "source": kernel.fingerprint}
