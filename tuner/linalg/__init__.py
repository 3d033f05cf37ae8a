"""Dense linear algebra on the GPU by the catalogue's tuned kernels, with the names and shapes of SciPy.

Matrices are the last two axes of arrays that ``tuner.apply`` takes, with any strides; axes before them are a
batch. Results are new arrays of the caller's library, in its current stream. Configurations are chosen as
``tuner.apply`` chooses them. See docs/linear-algebra.md.
"""

from tuner.linalg.factorisations import cholesky, lu, lu_factor, qr
from tuner.linalg.products import gemm
from tuner.linalg.solving import lu_solve, solve, solve_triangular, trsm

__all__ = ["cholesky", "gemm", "lu", "lu_factor", "lu_solve", "qr", "solve", "solve_triangular", "trsm"]
