"""cuBLASLt of a fake GPU: descriptors as ``cublasLt.h`` states them, products by a fake cuBLAS."""

import ctypes
from typing import Any

from fake_linalg_libraries import FakeLibrary

TYPES = {0: ("S", 68), 1: ("D", 70)}  # cudaDataType: letter and cublasComputeType_t without TF32
USABLE = (True, False, True)  # what the heuristics propose


class FakeCublasLt:
    """Answers calls by name.

    Args:
        library: computes the products.
    """

    def __init__(self, library: FakeLibrary) -> None:
        self._library = library
        self._described: list[dict[Any, Any]] = [{}]  # by handle, from 1

    def call(self, name: str, *arguments: Any) -> None:
        """As ``VendorLibrary.call``."""
        if name.endswith("SetAttribute"):
            of, attribute, value, size = arguments
            assert size.value == ctypes.sizeof(value._obj)
            self._described[of.value][attribute] = value._obj.value
        elif name == "cublasLtMatmulAlgoGetHeuristic":
            self._propose(*arguments[6:])
        elif name == "cublasLtMatmul":
            self._multiply(arguments)
        elif name.endswith("Create"):
            reference, *rest = arguments
            self._described.append({"create": tuple(getattr(one, "value", one) for one in rest)})
            reference._obj.value = len(self._described) - 1
        else:
            raise RuntimeError(f"{name} is not in this version")

    def _propose(self, preference: Any, wanted: int, found: Any, count: Any) -> None:
        assert self._described[preference.value][1] > 0
        assert wanted >= len(USABLE)
        for place, usable in enumerate(USABLE):
            found[place].state = 0 if usable else 15
        count._obj.value = len(USABLE)

    def _multiply(self, arguments: tuple[Any, ...]) -> None:
        _, operation, alpha, A, left, B, right, beta, C, made, D, _, chosen, _, _, stream = arguments
        of = {name: self._described[one.value] for name, one in (("A", left), ("B", right), ("C", made))}
        how = self._described[operation.value]
        compute, kind = how["create"]
        letter, right_compute = TYPES[kind]
        assert compute == right_compute
        assert chosen._obj.state == 0
        assert C.value == D.value
        batch = of["C"][5]
        assert all(one[5] == batch for one in of.values())
        (m, n), rows_and_columns = of["C"]["create"][1:3], of["A"]["create"][1:3]
        k = rows_and_columns[0 if how[3] else 1]
        assert of["B"]["create"][1:3] == ((n, k) if how[4] else (k, n))
        matrices = {
            name: (at, of[name]["create"][3], ctypes.c_longlong(of[name][6]))
            for name, at in (("A", A), ("B", B), ("C", C))
        }
        given = (how[3], how[4], m, n, k, alpha, *matrices["A"], *matrices["B"], beta, *matrices["C"], batch)
        self._library.call("cublasSetStream_v2", None, stream)
        self._library.call(f"cublas{letter}gemmStridedBatched", None, *given)
