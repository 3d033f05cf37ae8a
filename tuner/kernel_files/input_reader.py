"""Reading of inputs of a kernel file: generators with expressions, and files of NumPy."""

import ast
import hashlib
import lzma
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, cast, get_args

import numpy as np
from numpy.typing import NDArray

from tuner.kernel_files.formulas import Environment, Formula, Location
from tuner.model.errors import InputError, suggestion
from tuner.model.expressions.array_expressions import file_name
from tuner.model.expressions.operations import TroubleError
from tuner.model.expressions.parser import syntax_tree
from tuner.model.plan import DataFile, InputKind, InputSpec
from tuner.system.untrusted import archives
from tuner.system.untrusted.archives import check_directory, check_inflated
from tuner.system.untrusted.reading import ARCHIVE_BYTES

# --- Arrays in files of NumPy: looked at when a kernel file is read, opened by who needs the values.
#
# Pickled objects are never read. A file is known by the SHA-256 of its bytes, so that what is run is what was
# looked at. Files may be larger than memory: headers are read by themselves, bytes are hashed in pieces, and
# a ``.npy`` file is mapped.

_PIECE_BYTES = 2**22
_UNREADABLE = (OSError, EOFError, NotImplementedError, RuntimeError, zlib.error, lzma.LZMAError)
_END_BYTES = 2**17  # of a zip: where its directory is described
_RATIO = 200  # of a member of more than 64 MiB; arrays of zeros are packed more tightly
_hashes: dict[tuple[str, int, int], str] = {}  # of (path, time of the last change in ns, bytes)


@dataclass(frozen=True)
class ArrayHeader:
    """Element type and shape from the header of an array."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


def file_sha256(path: str | Path) -> str:
    """Hex digest of a file's bytes; read again only when its time or size has changed.

    Raises:
        InputError: it cannot be read.
    """
    with _opened(Path(path)) as file:
        status = Path(path).stat()
        key = str(path), status.st_mtime_ns, status.st_size
        if key not in _hashes:
            digest = hashlib.sha256()
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
            _hashes[key] = digest.hexdigest()
        return _hashes[key]


def array_header(file: DataFile) -> ArrayHeader:
    """Element type and shape of an array, from its header.

    Raises:
        InputError: the file is missing, truncated, pickled, in the order of Fortran or no file of NumPy; or
            it has no such key. The message names file and key.
    """
    path = Path(file.path)
    with _opened(path) as opened:
        if path.suffix == ".npy" and not file.key:
            return _header(file, opened, path.stat().st_size)
        if path.suffix != ".npz":
            reason = "has one array and no keys" if path.suffix == ".npy" else "is not of NumPy"
            raise InputError(f"{path} {reason}; name a .npy file, or a .npz file and a key")
        try:
            _check_end(opened)
            with zipfile.ZipFile(opened) as archive:
                member = archive.getinfo(_member(file, archive))
                if member.file_size > ARCHIVE_BYTES:
                    check_inflated(member.file_size, member.compress_size, member.file_size, _RATIO)
                with archive.open(member) as inner:
                    return _header(file, cast("BinaryIO", inner), member.file_size)
        except zipfile.BadZipFile as e:
            raise InputError(f"{path}: not a .npz file of NumPy, or a truncated one: {e}") from e
        except _UNREADABLE as e:
            raise InputError(f"{file}: cannot be read: {e}") from e
        except InputError:
            raise
        except ValueError as e:
            raise InputError(f"{file}: {e}; save it as .npy, or by numpy.savez without compression") from e


def array_of(file: DataFile) -> NDArray[Any]:
    """The array; that of a ``.npy`` file is mapped, not read.

    Raises:
        InputError: it cannot be read, or the file is not the one that was looked at.
    """
    if file.sha256 and file_sha256(file.path) != file.sha256:
        raise InputError(f"{file.path}: has changed since the kernel file was read; start the run again")
    array_header(file)
    try:
        if file.key:
            with np.load(file.path, allow_pickle=False) as archive:
                return np.asarray(archive[file.key])
        return cast("NDArray[Any]", np.load(file.path, mmap_mode="r", allow_pickle=False))
    except (*_UNREADABLE, ValueError, TypeError, KeyError, zipfile.BadZipFile) as e:
        raise InputError(f"{file}: cannot be read: {e}") from e


def _member(file: DataFile, archive: zipfile.ZipFile) -> str:
    name = f"{file.key}.npy"
    if not file.key or name not in archive.namelist():
        keys = ", ".join(member.removesuffix(".npy") for member in archive.namelist()) or "none"
        reason = f"has no array {file.key!r}" if file.key else "needs a key"
        raise InputError(f"{file.path}: {reason}; its keys are {keys}")
    return name


def _header(file: DataFile, opened: BinaryIO, size: int) -> ArrayHeader:
    """The header at the beginning of what was opened, which has ``size`` bytes."""
    try:
        shape, fortran, dtype = archives.array_header(opened, size)
    except ValueError as e:
        raise InputError(f"{file}: {e}") from e
    if fortran and len(shape) > 1:
        raise InputError(f"{file}: is in the order of Fortran; save numpy.ascontiguousarray(...) of it")
    if not dtype.isnative:
        raise InputError(
            f"{file}: its bytes are in the other order ({dtype.str}); save it in that of this machine"
        )
    return ArrayHeader(dtype.name, tuple(shape))


def _check_end(opened: BinaryIO) -> None:
    opened.seek(max(0, opened.seek(0, 2) - _END_BYTES))
    check_directory(opened.read(_END_BYTES))
    opened.seek(0)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        if path.exists() and not path.is_file():  # such as a pipe, which may never end
            raise InputError(f"{path}: is not a file")
        file = path.open("rb")
    except (OSError, ValueError) as e:
        raise InputError(f"{path}: cannot be read: {getattr(e, 'strerror', None) or e}") from e
    with file:
        yield file


# --- Inputs with their expressions parsed: generators, and files.

KINDS: tuple[str, ...] = get_args(InputKind)
_NUMBERS = {
    "uniform": 2,
    "normal": 2,
    "dominant": 2,
    "definite": 2,
    "spd": 1,
    "integers": 2,
    "constant": 1,
    "unique": 2,
    "csr_offsets": 1,
}
_WHOLE = ("integers", "range", "unique", "permutation", "csr_offsets")
_FORMS = (
    "uniform(a, b), normal(mean, deviation), dominant(a, b), definite(a, b), spd(c), "
    "integers(a, b), constant(v), range(), sorted(INPUT), unique(a, b), permutation(), csr_offsets(n), "
    'file("x.npy") or file("x.npz", "key")'
)
MAX_DEPTH = 4


@dataclass(frozen=True)
class InputRecipe:
    """An input whose arguments are not evaluated yet.

    Attributes:
        kind: the generator, or ``file``.
        file: for ``file``.
        inner: for ``sorted``.
    """

    location: Location
    kind: InputKind
    numbers: tuple[Formula, ...] = ()
    file: "FileRecipe | None" = None
    inner: "InputRecipe | None" = None

    @property
    def files(self) -> "tuple[FileRecipe, ...]":
        """The file it reads, if any."""
        if self.inner is not None:
            return self.inner.files
        return () if self.file is None else (self.file,)

    def evaluated(self, env: Environment, dtype: str, shape: tuple[int, ...]) -> InputSpec:
        """The input of an array of one workload.

        Raises:
            KernelFileError: an argument has no result, or the array cannot hold the values.
        """
        if self.file is not None:
            return InputSpec("file", file=self.file.fitting(dtype, shape))
        if self.inner is not None:
            return InputSpec("sorted", inner=self.inner.evaluated(env, dtype, shape))
        whole = self.kind in _WHOLE
        numbers = tuple(
            formula.whole(env, -(2**63), 2**63 - 1) if whole else formula.number(env)
            for formula in self.numbers
        )
        trouble = misfit(self.kind, numbers, dtype, shape)
        if trouble:
            raise self.location.error(trouble)
        return InputSpec(self.kind, numbers)


def read_input(location: Location, text: str, names: Collection[str], folder: Path) -> InputRecipe:
    """Parse ``input`` of a buffer; paths of files are relative to ``folder``.

    Raises:
        KernelFileError: it is no input, or its file cannot be used.
    """
    try:
        return _parsed(location, syntax_tree(text), names, folder, 0)
    except TroubleError as e:
        raise location.error(f"{text!r}: {e}; an input is {_FORMS}") from None


def named_files(text: str) -> tuple[str, ...]:
    """The paths that an input or a reference names, as they are written; none where it is neither."""
    try:
        calls = [node for node in ast.walk(syntax_tree(text)) if isinstance(node, ast.Call)]
        named = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "file"]
        return tuple(file_name(call)[0] for call in named)
    except TroubleError:  # refused where it is read
        return ()


def misfit(kind: str, numbers: tuple[int | float, ...], dtype: str, shape: tuple[int, ...]) -> str:
    """Return the reason why an array cannot hold the values of a generator; empty if it can."""
    if kind in ("uniform", "normal"):
        return _misfit_of_reals(kind, numbers, dtype)
    if kind in ("dominant", "definite", "spd"):
        values = (
            _misfit_of_spd(numbers[0], dtype) if kind == "spd" else _misfit_of_reals(kind, numbers, dtype)
        )
        return values or _misfit_of_matrices(kind, shape)
    length = shape[-1]
    if kind in ("constant", "csr_offsets"):
        low, whole = (0, True) if kind == "csr_offsets" else (numbers[0], False)
        below = whole and numbers[0] < 0
        return "a sum of row lengths is at least 0" if below else _beyond(low, numbers[0], dtype, whole=whole)
    low, high = numbers if kind in ("integers", "unique") else (0, length)
    if low >= high:
        return f"{kind}({low}, {high}) holds no number: the second bound is left out"
    if kind == "unique" and high - low < length:
        return f"unique({low}, {high}) has {high - low} numbers, and {length} different ones are needed"
    return _beyond(low, high - 1, dtype, whole=True)


@dataclass(frozen=True)
class FileRecipe:
    """A file of data whose header has been read; it is hashed when somebody needs it.

    Attributes:
        file: path and key, without a hash.
    """

    location: Location
    file: DataFile
    header: ArrayHeader

    @cached_property
    def hashed(self) -> DataFile:
        """The file as it was when it was first asked for.

        Raises:
            KernelFileError: it cannot be read.
        """
        try:
            return replace(self.file, sha256=file_sha256(self.file.path))
        except InputError as e:
            raise self.location.error(e) from e

    def fitting(self, dtype: str, shape: tuple[int, ...]) -> DataFile:
        """The file, if its array is of a type and shape.

        Raises:
            KernelFileError: it is not; the message names both.
        """
        stored = {dtype, "uint16"} if dtype == "bfloat16" else {dtype}
        if self.header.dtype not in stored or self.header.shape != shape:
            raise self.location.error(f"{self.file} is {self.header}, and the array is {dtype} {list(shape)}")
        return self.hashed


def read_file(location: Location, path: str, key: str, folder: Path) -> FileRecipe:
    """The file of a ``file(...)``.

    Raises:
        KernelFileError: its header cannot be read, or it holds pickled objects.
    """
    file = DataFile(str((folder / path).absolute()), key)
    try:
        return FileRecipe(location, file, array_header(file))
    except InputError as e:
        raise location.error(e) from e


def _parsed(
    location: Location, node: ast.expr, names: Collection[str], folder: Path, depth: int
) -> InputRecipe:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or depth > MAX_DEPTH:
        raise TroubleError("not a generator")
    kind = node.func.id
    if kind == "file":
        return InputRecipe(location, "file", file=read_file(location, *file_name(node), folder))
    if kind not in KINDS:
        raise TroubleError(f"no generator is called {kind!r}{suggestion(kind, KINDS)}")
    expected = 1 if kind == "sorted" else _NUMBERS.get(kind, 0)
    if node.keywords or len(node.args) != expected:
        raise TroubleError(f"{kind} takes {expected or 'no'} value{'s' if expected > 1 else ''}")
    if kind == "sorted":
        return InputRecipe(
            location, "sorted", inner=_parsed(location, node.args[0], names, folder, depth + 1)
        )
    numbers = tuple(Formula(location, ast.unparse(argument), names) for argument in node.args)
    return InputRecipe(location, cast("InputKind", kind), numbers)


def _misfit_of_reals(kind: str, numbers: tuple[int | float, ...], dtype: str) -> str:
    first, second = numbers
    if not _is_real(dtype) and np.dtype(dtype).kind != "c":
        return f"{kind} makes fractions, and the array is {dtype}; integers(a, b) makes whole numbers"
    if kind == "normal":
        return f"the deviation {second} is below 0" if second < 0 else _beyond(first, first, dtype)
    if first >= second:
        return f"{kind}({first}, {second}) holds no number: the second bound is larger"
    return _beyond(first, second, dtype)


def _misfit_of_spd(condition: float, dtype: str) -> str:
    if not _is_real(dtype) or dtype == "bfloat16":
        return f"spd makes matrices of float16, float32 or float64, and the array is {dtype}"
    return "" if condition >= 1 else f"a condition number is at least 1, and that of spd is {condition}"


def _misfit_of_matrices(kind: str, shape: tuple[int, ...]) -> str:
    if len(shape) > 1 and shape[-1] == shape[-2]:
        return ""
    return f"{kind} makes square matrices, and the array has the shape {' x '.join(map(str, shape))}"


def _is_real(dtype: str) -> bool:
    return dtype == "bfloat16" or np.dtype(dtype).kind == "f"


def _beyond(low: float, high: float, dtype: str, *, whole: bool = False) -> str:
    """Return the error for a range that a type cannot hold (whole numbers: exactly); empty if it can."""
    if dtype == "bfloat16":
        least, most = (-(2**8), 2**8) if whole else (-3.3895313892515355e38, 3.3895313892515355e38)
    elif np.dtype(dtype).kind in "fc":
        info = np.finfo(dtype)
        exact = 2 ** (info.nmant + 1)
        least, most = (-exact, exact) if whole else (float(info.min), float(info.max))
    elif dtype == "bool":
        least, most = 0, 1
    else:
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if not whole and np.dtype("float32" if dtype == "bfloat16" else dtype).kind in "biu" and low != int(low):
        return f"{low} is a fraction, and the array is {dtype}"
    if low < least or high > most:
        what = "whole numbers that are exact in it" if whole and _is_real(dtype) else "what it holds"
        return f"values from {low} to {high} do not fit {dtype}: {what} are from {least} to {most}"
    return ""
