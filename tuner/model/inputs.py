"""Where the values of an array come from: a generator, a file of data, a function in a Python file."""

from dataclasses import dataclass
from typing import Literal

InputKind = Literal[
    "uniform",
    "normal",
    "dominant",
    "definite",
    "spd",
    "integers",
    "constant",
    "range",
    "sorted",
    "unique",
    "permutation",
    "csr_offsets",
    "file",
]


@dataclass(frozen=True)
class DataFile:
    """An array in a file of NumPy.

    Attributes:
        path: absolute, of a ``.npy`` or ``.npz`` file.
        key: name of the array in a ``.npz`` file, else empty.
        sha256: hex digest of the file, when the kernel file was read.
    """

    path: str
    key: str = ""
    sha256: str = ""

    def __str__(self) -> str:
        return f'{self.path} ["{self.key}"]' if self.key else self.path


@dataclass(frozen=True)
class InputSpec:
    """How the values of an input are made.

    Attributes:
        kind: the generator, or ``file``.
        numbers: its arguments: bounds, mean and deviation, a value, or a sum.
        file: for ``file``.
        inner: for ``sorted``: what is sorted.
    """

    kind: InputKind
    numbers: tuple[int | float, ...] = ()
    file: DataFile | None = None
    inner: "InputSpec | None" = None

    def __str__(self) -> str:
        given = self.file or self.inner or ", ".join(f"{number:g}" for number in self.numbers)
        return f"{self.kind}({given})"


@dataclass(frozen=True)
class PythonFunction:
    """A function in a Python file of the user; only worker processes import it.

    Attributes:
        path: absolute, of the file.
        name: of the function.
        sha256: hex digest of the file, when the kernel file was read.
        arrays: the library whose arrays it is called with.
    """

    path: str
    name: str
    sha256: str = ""
    arrays: Literal["numpy", "cupy"] = "numpy"

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"
