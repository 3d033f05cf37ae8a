"""A forest that predicts the logarithm of a configuration's slowdown at an input."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.model.errors import InputError
from tuner.prediction.trees import LEAF, FlatTree

TREES = 64
LEAST_LEAF = 1
SHARE = 1.0  # of the features that a split is chosen from


def grown(
    rows: NDArray[np.float32],
    targets: NDArray[np.float64],
    weights: NDArray[np.float64],
    seed: int = 0,
    *,
    count: int = TREES,
) -> list[FlatTree]:
    """Trees grown on rows of features.

    Args:
        rows: features, float32.
        targets: what is to be predicted for each row.
        weights: of the rows.
        seed: of what is drawn.
        count: of trees.

    Raises:
        InputError: scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import ExtraTreesRegressor  # noqa: PLC0415 - only training needs it
    except ImportError as e:
        raise InputError(
            "training needs scikit-learn: pip install '.[train]' in tuner's checkout;"
            " --method g-adapt needs none"
        ) from e
    model = ExtraTreesRegressor(
        n_estimators=count, min_samples_leaf=LEAST_LEAF, max_features=SHARE, random_state=seed, n_jobs=-1
    )
    model.fit(rows, targets, sample_weight=weights)
    return [_flat(estimator.tree_) for estimator in model.estimators_]


def _flat(tree: Any) -> FlatTree:  # noqa: ANN401 - scikit-learn's own
    """A tree of scikit-learn with nodes below their parents, as it numbers them."""
    leaf = tree.children_left < 0
    return FlatTree(
        feature=np.where(leaf, LEAF, tree.feature).astype(np.int32),
        threshold=np.where(leaf, 0.0, tree.threshold).astype(np.float32),
        left=np.where(leaf, 0, tree.children_left).astype(np.int32),
        right=np.where(leaf, 0, tree.children_right).astype(np.int32),
        value=tree.value[:, 0, 0].astype(np.float32),
    )
