import numpy as np


def softmax(inp):
    """The softmax of each row, in double precision."""
    weights = np.exp(inp.astype(np.float64) - inp.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def rms_norm(inp, residual, weight, eps):
    """The sum, and its rows by their root mean square."""
    total = inp.astype(np.float32) + residual
    return {"out": total / np.sqrt((total**2).mean(axis=1, keepdims=True) + eps) * weight, "total": total}


def attention(q, k, v, scale):
    """The heads one by one, as their scores are large."""
    out = np.empty_like(q, dtype=np.float32)
    for head, keys in enumerate(k.astype(np.float32)):
        weights = softmax(scale * (q[head].astype(np.float32) @ keys.T))
        out[head] = weights.astype(np.float32) @ v[head].astype(np.float32)
    return out


def fused_moe(a, b, ids):
    """Each token times the transposed matrix of each of its experts, a row for each pair."""
    product = np.empty((ids.size, b.shape[1]), np.float32)
    for expert, matrix in enumerate(b.astype(np.float32)):
        pairs = np.flatnonzero(ids == expert)
        product[pairs] = a[pairs // ids.shape[1]].astype(np.float32) @ matrix.T
    return product
