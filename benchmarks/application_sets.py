"""The five applications of the multi-kernel paper: sizes, sets that run together, and restricted spaces.

Sizes, rules and the rows of Table IV are data. A space is restricted by the means of a kernel file: further
rules under ``[constraints]``, and other values under ``[default]``. Sources and hashes stay those of the
catalogue, so that recordings belong to its kernels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.formulas import Formula, Location
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.recipe import Rule
from tuner.model.errors import UnknownNameError
from tuner.model.expressions.callables import Expression
from tuner.model.plan import STREAM_PRIORITY

KERNELS = {
    "StreamCluster": "streamcluster",
    "ParticleFilter": "particle-filter",
    "Lud": "lud",
    "HotSpot": "hotspot",
    "MatrixMul": "matmul-split-k",
}
PAIRS = (("Lud", "ParticleFilter"), ("Lud", "MatrixMul"), ("StreamCluster", "HotSpot"))
FOUR = ("StreamCluster", "ParticleFilter", "Lud", "HotSpot")
SETS = (*((name,) for name in KERNELS), *PAIRS, FOUR)

# Table II of the paper. It tells no repeats: steps are Rodinia's default, calls as many as the kernel has.
PAPER_SIZES = {
    "StreamCluster": "N=65536,DIM=256,K=10,CALLS=100",
    "ParticleFilter": "N=100000,H=128,W=128",
    "Lud": "N=4096",
    "HotSpot": "ROWS=8192,COLUMNS=8192,STEPS=60",
    "MatrixMul": "M=4096,N=4096,K=4096",
}
# Alone at their best, they take 0.46 (MatrixMul) and 0.8 to 1.4 ms on an H200.
GPU_SIZES = {
    "StreamCluster": "N=262144,DIM=256,K=10,CALLS=10",
    "ParticleFilter": "N=8388608,H=1024,W=1024",
    "Lud": "N=1536",
    "HotSpot": "ROWS=6144,COLUMNS=6144,STEPS=20",
    "MatrixMul": "M=2048,N=2048,K=2048",
}
# Solo times within a factor of 2 on the modelled K20c and K40c, where lud is much slower than on a board.
MODELLED_SIZES = {
    "StreamCluster": "N=65536,DIM=256,K=10,CALLS=10",
    "ParticleFilter": "N=2097152,H=128,W=128",
    "Lud": "N=768",
    "HotSpot": "ROWS=1536,COLUMNS=1536,STEPS=20",
    "MatrixMul": "M=1280,N=1280,K=1280",
}
SIZES = {"table-ii": PAPER_SIZES, "gpu": GPU_SIZES, "modelled": MODELLED_SIZES}


@dataclass(frozen=True)
class Restriction:
    """What a space has beside the rules of its kernel file.

    Attributes:
        block: what Table IV calls the block size, as an expression of the tunables for people.
        rules: conditions, as under ``[constraints]``.
        default: values instead of those under ``[default]``.
    """

    block: str
    rules: Sequence[str]
    default: Mapping[str, int | str] = field(default_factory=dict)


# Block sizes only, all else as the paper's kernels have it. No kernel's space has less than 32 threads.
PAPER_SPACE = {
    "StreamCluster": Restriction(
        "B", ("P == 1", "U == 4", "held == 'shared'", "layout == 'centre'", "R == 128")
    ),
    "ParticleFilter": Restriction(
        "B",
        ("P == 1", "F == B", "cdf_by == 'serial'", "search == 'linear'"),
        {"B": 128, "F": 128, "cdf_by": "serial", "search": "linear"},
    ),
    "Lud": Restriction("B×B", ("R == 1", "Q == 1", "C == 2 * B", "FUSE == 0"), {"C": 32}),
    "HotSpot": Restriction("X×Y", ("X == Y", "R == 1", "T == 1")),
    "MatrixMul": Restriction("BM×BN", ("BM == BN", "BM <= 32", "BM == 16 * TM", "TN == TM", "BK == 16")),
}
# The values that matter most: 6 × 4 × 5 × 5 = 600 combinations of the four.
REDUCED_SPACE = {
    "StreamCluster": Restriction(
        "B U",
        ("P == 1", "B in (128, 512, 1024)", "U in (4, 8)", *PAPER_SPACE["StreamCluster"].rules[2:]),
    ),
    "ParticleFilter": Restriction(
        "B F",
        (
            "P == 1",
            "B in (128, 1024)",
            "F in (128, 512)",
            "cdf_by == 'scan'",
            "S == 256",
            "search == 'binary'",
        ),
    ),
    "Lud": Restriction(
        "B C R Q",
        (
            "FUSE == 0",
            "B == 16 and R == 1 or B == 32 and R in (4, 8) or B == 64 and R == 8",
            "Q == 1 or B == 64 and Q == 2",
            "C == min(64, 2 * B)",
        ),
    ),
    "HotSpot": Restriction(
        "X Y R T",
        (
            "BUFFERS == 1 and POWER == 'register'",
            "T in (1, 3)",
            "T == 3 or X == 16 and Y == 16 and R == 1 or X == 32 and Y == 8 and R in (1, 4)",
            "T == 1 or X == 32 and Y == 32 and R == 1 or X == 64 and Y == 8 and R == 4",
        ),
    ),
    "MatrixMul": Restriction("BM×BN", ("BM == BN", "BM == 16 * TM", "TN == TM", "BK == 16", "S == 1")),
}
# What searches of each alone found on an H200, and some that are a little slower alone, as larger blocks of
# StreamCluster are. With two priorities of each stream 4 × 2 × 2 × 2 × 16 = 512 combinations of the four.
CO_RUN_SPACE = {
    "StreamCluster": Restriction(
        "B P U",
        (
            "layout == 'centre'",
            "U == 16 and held == 'cache' and R == 1024 or U == 4 and held == 'shared' and R == 128",
            "B == 128 and P == 1 if U == 4 else B == 64 and P == 1 or B in (512, 1024) and P == 2",
        ),
    ),
    "ParticleFilter": Restriction(
        "B P F",
        (
            "cdf_by == 'scan' and S == 256 and search == 'binary'",
            "B == 128 and P == 4 and F == 128 or B == 512 and P == 2 and F == 64",
        ),
        {"B": 512, "P": 2, "F": 64, "S": 256},
    ),
    "Lud": Restriction(
        "B C R Q",
        ("B == 32 and C == 128 and FUSE == 1", "R == 1 and Q == 2 or R == 4 and Q == 1"),
        {"B": 32, "C": 128, "R": 4, "Q": 1, "FUSE": 1},
    ),
    "HotSpot": Restriction(
        "X Y R T",
        (
            "T == 6 and BUFFERS == 1",
            "X == 128 and POWER == 'register' or X == 64 and POWER == 'cache'",
            "Y == 2 and R == 16 if X == 128 else Y == 16 and R == 4",
        ),
        {"X": 64, "Y": 16, "R": 4, "T": 6, "BUFFERS": 1, "POWER": "cache"},
    ),
    "MatrixMul": Restriction(
        "BM×BN",
        ("BM == BN and BM >= 64 and TM == 8 and TN == 8 and BK == 16 and S == 1",),
        {"BM": 128, "BN": 128, "BK": 16, "TM": 8, "TN": 8},
    ),
}
SPACES = {"paper": PAPER_SPACE, "reduced": REDUCED_SPACE, "co-run": CO_RUN_SPACE}
PRIORITIES = {"paper": 1, "reduced": 1, "co-run": 2}  # of a stream beside others


def restricted(kernel: KernelFile, by: Restriction) -> KernelFile:
    """A kernel file with further rules and other defaults.

    Raises:
        ExpressionError: a rule is not in the language of kernel files.
    """
    rules = tuple(Rule(Expression(text), text) for text in by.rules)
    location = Location(str(kernel.path), "[default] of a restricted space")
    default = {
        name: value if isinstance(value, str) else Formula(location, value, ())
        for name, value in by.default.items()
    }
    recipe = kernel.recipe
    return replace(
        kernel,
        recipe=replace(recipe, rules=(*recipe.rules, *rules), default={**recipe.default, **default}),
    )


def catalog_of(space: str) -> Catalog:
    """The catalogue, with the five applications restricted to one of the spaces."""
    catalog = Catalog.load(())
    narrow = {KERNELS[name]: by for name, by in SPACES[space].items()}
    kernels = {
        name: restricted(kernel, narrow[name]) if name in narrow else kernel
        for name, kernel in catalog.kernels.items()
    }
    return replace(catalog, kernels=kernels)


def usual_sizes(space: str, device: str) -> str:
    """Which sizes belong to a space on a device: Table II for the paper's space, else balanced ones."""
    if space == "paper":
        return "table-ii"
    return "modelled" if device.startswith("sim:") else "gpu"


def recorded_space(device: str) -> str:
    """Which space is recorded of a device: that of GPUs has what a simulated device does not know."""
    return "reduced" if device.startswith("sim:") else "co-run"


def spec_of(name: str, sizes: str) -> str:
    """An application as a workload."""
    return f"{KERNELS[name]}:{SIZES[sizes][name]}"


def chosen_sets(texts: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Sets by what the user names them: ``Lud``, ``Lud+MatrixMul``, ``four``; all without any.

    Raises:
        UnknownNameError: a name is none of the applications'.
    """
    by_lower = {name.lower(): name for name in KERNELS}
    found = []
    for text in texts:
        if text.lower() == "four":
            found.append(FOUR)
            continue
        names = text.lower().split("+")
        unknown = [name for name in names if name not in by_lower]
        if unknown or len(set(names)) < len(names):
            raise UnknownNameError(
                f"--only {text}: choose from {', '.join(KERNELS)}, different ones joined by +, or four"
            )
        found.append(tuple(by_lower[name] for name in names))
    return tuple(found) or SETS


def block_of(name: str, space: str, configuration: Mapping[str, Any]) -> str:
    """A configuration as Table IV would print it: the values that the space leaves open."""
    parts = SPACES[space][name].block
    joint = "×" if "×" in parts else " "
    names = parts.split(joint)
    named = joint == " " and len(names) > 1
    block = joint.join(f"{one}={configuration[one]}" if named else str(configuration[one]) for one in names)
    return f"{block} priority={configuration[STREAM_PRIORITY]}" if STREAM_PRIORITY in configuration else block
