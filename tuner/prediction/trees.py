"""Decision trees as flat lists: read from JSON and evaluated with NumPy alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.model.errors import InputError

MOST_NODES = 2**20
LEAF = -1


@dataclass(frozen=True)
class FlatTree:
    """A binary tree; node 0 is its root.

    A row goes left where its feature is at most the threshold.

    Attributes:
        feature: column that a node asks for; -1 of a leaf.
        threshold: of a node.
        left: number of the node on the left; 0 of a leaf.
        right: number of the node on the right; 0 of a leaf.
        value: of a leaf: what is predicted.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]

    @property
    def depth(self) -> int:
        """The most splits above a leaf."""
        depths = [0] * len(self.feature)
        for node in np.flatnonzero(self.feature >= 0).tolist():  # children come behind their parents
            for child in (self.left.item(node), self.right.item(node)):
                depths[child] = max(depths[child], depths[node] + 1)
        return max(depths)

    def leaves(self, rows: NDArray[np.float32]) -> NDArray[np.int64]:
        """The number of the leaf that each row comes to."""
        nodes = np.zeros(len(rows), dtype=np.int64)
        places = np.arange(len(rows))
        while True:
            inner = self.feature[nodes] >= 0
            if not inner.any():
                return nodes
            at, here = places[inner], nodes[inner]
            goes_left = rows[at, self.feature[here]] <= self.threshold[here]
            nodes[inner] = np.where(goes_left, self.left[here], self.right[here])

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """What is predicted for each row."""
        return self.value[self.leaves(rows)]

    def document(self) -> dict[str, list[float]]:
        """As JSON has it; a number of 32 bits needs nine digits."""
        return {
            "feature": self.feature.tolist(),
            "threshold": [float(f"{number:.9g}") for number in self.threshold.tolist()],
            "left": self.left.tolist(),
            "right": self.right.tolist(),
            "value": [float(f"{number:.9g}") for number in self.value.tolist()],
        }

    @classmethod
    def of(cls, document: Mapping[str, Any], features: int) -> "FlatTree":
        """A tree from JSON.

        Args:
            document: as ``document`` made it.
            features: columns of the rows.

        Raises:
            InputError: it is no tree of so many features.
        """
        try:
            tree = cls(
                np.array(document["feature"], dtype=np.int32),
                np.array(document["threshold"], dtype=np.float32),
                np.array(document["left"], dtype=np.int32),
                np.array(document["right"], dtype=np.int32),
                np.array(document["value"], dtype=np.float32),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as e:
            raise InputError(f"it is no tree: {e}") from e
        tree._check(features)
        return tree

    def _check(self, features: int) -> None:
        """Refuse trees that a row would never leave, or that ask for a column that is not there."""
        count = len(self.feature)
        arrays = (self.feature, self.threshold, self.left, self.right, self.value)
        if not 1 <= count <= MOST_NODES or any(array.shape != (count,) for array in arrays):
            raise InputError("its lists are empty, too long, or of different lengths")
        if not (np.isfinite(self.threshold).all() and np.isfinite(self.value).all()):
            raise InputError("a number of it is not finite")
        inner = self.feature != LEAF
        if (self.feature[inner] < 0).any() or (self.feature[inner] >= features).any():
            raise InputError(f"it asks for a feature that is not among the {features}")
        numbers = np.arange(count)[inner]
        for children in (self.left[inner], self.right[inner]):
            if (children <= numbers).any() or (children >= count).any():
                raise InputError("a node is not below its parent")
        if np.unique([self.left[inner], self.right[inner]]).size < 2 * len(numbers):
            raise InputError("a node has two parents")


def mean_of(trees: Sequence[FlatTree], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of what trees predict for each row."""
    total = np.zeros(len(rows), dtype=np.float32)
    for tree in trees:
        total += tree.predict(rows)
    return total / np.float32(len(trees))
