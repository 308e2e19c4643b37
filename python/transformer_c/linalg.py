"""Norms, inverses and solutions, and NumPy's factorisations of matrices, which have no gradients: all but norms are computed on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._core import Tensor
from ._names import hooks
from ._recording import is_grad_enabled
from ._tensor import as_tensor
from .tensor_functions import norm as _norm

LinAlgError = np.linalg.LinAlgError


class QR(NamedTuple):
    """What ``qr`` returns."""

    Q: Any
    R: Any


class SVD(NamedTuple):
    """What ``svd`` returns."""

    U: Any
    S: Any
    Vh: Any


class Eigh(NamedTuple):
    """What ``eigh`` returns."""

    eigenvalues: Any
    eigenvectors: Any


def _by_numpy(name: str, function: Callable[..., Any], *given: Any) -> Any:
    """Results as Tensors where an argument is one: of the first one's device."""
    tensors = [x for x in given if isinstance(x, Tensor)]
    if is_grad_enabled() and any(x.requires_grad for x in tensors):
        raise RuntimeError(f"linalg.{name}() has no gradient: use detach() first")
    arrays = [x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x) for x in given]
    for array in arrays:
        if array.dtype.kind != "f" or array.itemsize < 4:
            advice = "convert it with .float()" if tensors else "give an ndarray of float64"
            raise TypeError(f"linalg.{name}() takes float32 and float64, got {array.dtype}; {advice}")
    found = function(*arrays)
    if not tensors:
        return found
    several = isinstance(found, tuple)
    results = tuple(as_tensor(np.ascontiguousarray(x)).to(tensors[0].device) for x in (found if several else (found,)))
    return results if several else results[0]


def qr(A: Any, mode: str = "reduced") -> QR:
    """The product of an orthogonal matrix and an upper triangular one.

    Parameters
    ----------
    A : array_like, shape (..., M, N)
    mode : "reduced", "complete" or "r"
        Q of shape (..., M, min(M, N)), (..., M, M), or empty.

    Examples
    --------
    >>> import transformer_c as tc
    >>> q, r = tc.linalg.qr(tc.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> tc.allclose(q @ r, tc.tensor([[3.0, 1.0], [4.0, 2.0]]))
    True
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"mode must be 'reduced', 'complete' or 'r', got {mode!r}")
    if mode == "r":
        return QR(*_by_numpy("qr", lambda a: (np.empty(0, a.dtype), np.linalg.qr(a, mode="r")), A))
    return QR(*_by_numpy("qr", lambda a: tuple(np.linalg.qr(a, mode="complete" if mode == "complete" else "reduced")), A))


def svd(A: Any, full_matrices: bool = True) -> SVD:
    """Singular vectors and values: A = U diag(S) Vh.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.linalg.svd(tc.tensor([[3.0, 0.0], [0.0, 4.0]])).S
    tensor([4., 3.])
    """
    return SVD(*_by_numpy("svd", lambda a: tuple(np.linalg.svd(a, full_matrices=full_matrices)), A))


def eigh(A: Any, UPLO: str = "L") -> Eigh:
    """Eigenvalues, in ascending order, and eigenvectors of symmetric matrices, of which the lower or upper triangle is read.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.linalg.eigh(tc.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    tensor([1., 2.])
    """
    if UPLO not in ("L", "U", "l", "u"):
        raise ValueError(f"UPLO must be 'L' or 'U', got {UPLO!r}")
    return Eigh(*_by_numpy("eigh", lambda a: tuple(np.linalg.eigh(a, "U" if UPLO in "Uu" else "L")), A))


def inv(A: Any) -> Any:
    """The inverses of matrices, with their gradients; ``LinAlgError`` where there is none.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.linalg.inv(tc.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    inverse = _by_numpy("inv", np.linalg.inv, _detached(A))
    return inverse - inverse @ _change(A) @ inverse if _is_recorded(A) else inverse


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, Tensor) else x


def _is_recorded(*given: Any) -> bool:
    return is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in given)


def _change(x: Any) -> Any:
    """Zeros that have the gradient of `x`: a result plus what is linear in them has its values, and its derivative."""
    return x - x.detach() if isinstance(x, Tensor) else 0.0 * as_tensor(x)


def solve(A: Any, B: Any) -> Any:
    """X of A X = B, of matrices, with its gradients; B has vectors where it is one, or has the shape of A without the last axis.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.linalg.solve(tc.tensor([[2.0, 0.0], [0.0, 4.0]]), tc.tensor([[1.0], [2.0]]))
    tensor([[0.5000],
            [0.5000]])
    """
    found = _by_numpy("solve", _solve, _detached(A), _detached(B))
    if not _is_recorded(A, B):
        return found
    change, is_vector = _change(B), np.ndim(B) == 1 or tuple(np.shape(B)) == tuple(np.shape(A)[:-1])
    change, x = (v.unsqueeze(-1) if is_vector else v for v in (change, found))
    first_order = inv(_detached(A)) @ (change - _change(A) @ x)
    return x.add(first_order).squeeze(-1) if is_vector else x + first_order


def _solve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if b.ndim == 1 or b.shape == a.shape[:-1]:
        return np.linalg.solve(a, b[..., np.newaxis])[..., 0]
    return np.linalg.solve(a, b.reshape((1,) * (a.ndim - b.ndim) + b.shape))  # NumPy goes by the number of axes


def vector_norm(x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """``tc.norm``: the norm of all elements, or of those along axes, with its gradient.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.linalg.vector_norm(tc.tensor([[3.0, 4.0], [6.0, 8.0]]), dim=1)
    tensor([ 5., 10.])
    """
    return _norm(x, ord, dim, keepdim, dtype)


def norm(A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """``tc.norm``: the Euclidean norm of vectors and matrices, and other norms of vectors, with its gradient.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.linalg.norm(tc.tensor([[3.0, 4.0], [6.0, 8.0]]), dim=-1, keepdim=True)
    tensor([[ 5.],
            [10.]])
    """
    axes = len(dim) if isinstance(dim, (tuple, list)) else np.ndim(A) if dim is None else 1
    if ord is not None and (axes != 1 or ord == "fro") and (ord != "fro" or axes != 2):
        raise ValueError(f"norm() computes no matrix norm {ord!r}, besides 'fro'; for that of all elements use vector_norm()")
    return _norm(A, 2.0 if ord is None else ord, dim, keepdim, dtype)


__all__ = ["eigh", "inv", "norm", "qr", "solve", "svd", "vector_norm"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(
        __name__,
        instead={
            name: f"NumPy: np.linalg.{name} of t.numpy(), without a gradient" for name in ("cholesky", "det", "pinv", "lstsq", "slogdet")
        },
    )
