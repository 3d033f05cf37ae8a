"""Analytical answers for kernels that nobody tuned: worked out once, and kept on the disk.

An answer is bound to what a stored one is: the GPU, its driver, the source and NVRTC; also to its
limits, which are lower for a part of a GPU (MIG), and to the version of the model.
"""

import contextlib
import hashlib
import json
import logging
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from tuner.application.choice import Chosen
from tuner.database.answers import ANALYSIS_VERSION
from tuner.devices.base import Device
from tuner.devices.cuda.direct import DirectGpu
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import KernelFileError, NothingFitsError, TunerError
from tuner.model.plan import TunableValue, Workload
from tuner.model.typed import sealed, typed, unsealed
from tuner.search.candidates import plan_bytes, prepare
from tuner.search.explaining import analytical_choice
from tuner.system.untrusted.reading import load_json, read_bytes
from tuner.system.user_folders import make_folder, user_folder

_LOG = logging.getLogger(__name__)
_MOST_BYTES = 2**20  # of an answer that is kept


@dataclass(frozen=True)
class AnalyticalAnswer:
    """Answer of the analytical model for a workload.

    Attributes:
        values: of the tunables; None where compiling rules out all candidates.
        rule: ``embedded``, ``server`` or ``stated``; empty without values.
        considered: candidates.
    """

    values: Mapping[str, TunableValue] | None
    rule: str
    considered: int


def work_out(kernel: KernelFile, workload: Workload, gpu: DirectGpu) -> tuple[AnalyticalAnswer | None, bool]:
    """Compile the front-runners of a workload and choose by the analytical model; nothing runs.

    Returns:
        The answer, None where the model has none; and whether it may be kept: not where a stated answer
        before it did not compile, as another time it may.

    Raises:
        TunerError: nothing is left of the space, or nothing can be compiled.
    """
    with gpu.compiling() as compiling:
        device = cast("Device", compiling)  # of a device, nothing else is used
        (declared,) = prepare([(kernel, workload)], device, stated_only=True)
        try:
            choice, known = analytical_choice(declared, device)
        except NothingFitsError as error:
            _LOG.info("%s: no analytical answer: %s", workload, error)
            return AnalyticalAnswer(None, "", len(declared.candidates)), True
    if choice is None:
        return None, False
    answer = AnalyticalAnswer(dict(choice.configuration), choice.rule, len(known.candidates))
    return answer, not (choice.rule == "stated" and known.compile_errors)


class UntunedAnswers:
    """Analytical answers by workload and GPU; a batch is answered as the power of two below it.

    Threads take turns.

    Args:
        folder: where they are kept; None for the user's cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._known: dict[str, AnalyticalAnswer | None] = {}
        self._lock = threading.Lock()
        self._told = False

    def answer(self, kernel: KernelFile, workload: Workload, gpu: DirectGpu) -> Chosen | None:
        """The analytical answer; None where the model has none that the rules allow at this batch.

        Unless the kernel file states it, there is none for arrays that fit into the GPU's cache: the model's
        premise is that memory is the bound. On an H200 defaults are up to 3.4 times as fast there, 1.4 times
        slower beyond.

        The first answer for a workload compiles its candidates, which takes seconds. The first question of a
        process is logged as a warning that tells how to tune.
        """
        with self._lock:
            self._tell(workload)
        asked = replace(workload, batch=1 << (workload.batch.bit_length() - 1))
        if not _states(kernel, asked, gpu.identity.name) and _bytes(kernel, workload) <= gpu.limits.l2_bytes:
            return None
        conditions = _conditions(kernel, asked, gpu)
        key = hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()
        with self._lock:
            if key not in self._known:
                self._known[key] = self._read(key, conditions) or self._worked_out(
                    key, conditions, kernel, asked, gpu
                )
        found = self._known[key]
        if found is None or found.values is None:
            return None
        configuration = kernel.allowed(workload, found.values)
        if configuration is None:
            return None
        origin = (
            f"analytical: by the rule {found.rule!r} of {found.considered} candidates; nothing was measured"
        )
        return Chosen(configuration, origin, unmeasured=True)

    def _worked_out(
        self,
        key: str,
        conditions: Mapping[str, str | int],
        kernel: KernelFile,
        workload: Workload,
        gpu: DirectGpu,
    ) -> AnalyticalAnswer | None:
        try:
            result, lasting = work_out(kernel, workload, gpu)
        except TunerError as error:
            _LOG.info("%s: no analytical answer: %s", workload, error)
            return None
        if result is not None and lasting:
            self._write(key, {**conditions, "answer": vars(result)})
        return result

    def _tell(self, workload: Workload) -> None:
        level = logging.DEBUG if self._told else logging.WARNING
        self._told = True
        _LOG.log(
            level,
            "%s was not tuned on this GPU: its configuration is chosen without measuring;"
            " to measure: tuner run %s,batch=%d --objective time",
            *(workload, workload, workload.batch),
        )

    def _path(self, key: str) -> Path:
        if self._folder is None:
            self._folder = user_folder("cache") / "analytical"
        return self._folder / f"{key}.json"

    def _read(self, key: str, conditions: Mapping[str, str | int]) -> AnalyticalAnswer | None:
        """Return the stored answer; None if it is missing, damaged or without a checksum."""
        try:
            stored = unsealed(load_json(read_bytes(self._path(key), _MOST_BYTES)), (*conditions, "answer"))
            found: AnalyticalAnswer = typed(AnalyticalAnswer, stored["answer"], "answer")
        except (OSError, ValueError, RecursionError):
            return None
        return found if {**stored, "answer": None} == {**conditions, "answer": None} else None

    def _write(self, key: str, document: Mapping[str, object]) -> None:
        """Write a file whole or not at all; without one the next process works the answer out again."""
        path, temporary = self._path(key), None
        try:
            make_folder(path.parent)
            with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as stream:
                temporary = stream.name
                json.dump(sealed(document), stream)
            Path(temporary).replace(path)
        except OSError as error:
            _LOG.info("%s: the analytical answer is not kept: %s", path, error)
            if temporary is not None:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()


def _states(kernel: KernelFile, workload: Workload, gpu: str) -> bool:
    """Return True if the kernel file states an answer, even if invalid: computing it reports that."""
    try:
        return bool(kernel.stated_answers(workload, gpu))
    except KernelFileError:
        return True


def _bytes(kernel: KernelFile, workload: Workload) -> int:
    return plan_bytes(kernel.plan(workload, kernel.default(workload)))


def _conditions(kernel: KernelFile, workload: Workload, gpu: DirectGpu) -> dict[str, str | int]:
    device = gpu.identity
    return {
        "workload": str(workload),
        "batch": workload.batch,
        "gpu": device.name,
        "uuid": device.uuid,
        "limits": str(gpu.limits),
        "driver": device.driver,
        "runtime": device.runtime,
        "source": kernel.fingerprint,
        "version": ANALYSIS_VERSION,
    }
