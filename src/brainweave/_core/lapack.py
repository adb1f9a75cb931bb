"""LAPACK without Python's lock, so that subjects in threads do not wait for each other.

SciPy's wrappers of LAPACK hold the lock (GIL). What SciPy offers to compiled code
(:mod:`scipy.linalg.cython_lapack`) is called here by ctypes, which releases it. Where
these functions have other signatures than expected (:data:`RELEASES_GIL` is False), the
wrappers are called.
"""

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cython_lapack, lapack

from brainweave._core.arrays import Matrix

_ARGUMENTS = {  # besides the last, info
    "dpotrf": "char int d int",
    "dpotri": "char int d int",
    "dpotrs": "char int int d int d int",
    "dsytrd": "char int d int d d d d int",
    "dstevd": "char int d d d int d int int int",
    "dormqr": "char char int int int d int d d int d int",
}
Call = Callable[..., int]


def _signature_and_address(capsule: Any) -> tuple[str, int]:
    """Return the C signature of a function of SciPy, and its address."""
    api = ctypes.pythonapi
    name, pointer = api.PyCapsule_GetName, api.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    declared: bytes = name(capsule)
    plain = re.sub(r"__pyx_t\w+_d\b", "d", declared.decode())
    return plain, pointer(capsule, declared)


def _function(name: str) -> Call | None:
    """Return a function that calls LAPACK's and returns its last argument, info.

    None if SciPy has no such function, or one with another signature.
    """
    kinds = [*_ARGUMENTS[name].split(), "int"]
    wanted = f"void ({', '.join(f'{kind} *' for kind in kinds)})"
    try:
        declared, address = _signature_and_address(cython_lapack.__pyx_capi__[name])
    except (AttributeError, KeyError):
        return None
    if declared != wanted:
        return None
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(kinds))(address)

    def call(*arguments: Any) -> int:
        info = ctypes.c_int()
        held = [ctypes.c_int(a) if isinstance(a, int) else a for a in arguments]
        function(*map(_pointer, held), ctypes.addressof(info))
        return info.value

    return call


def _pointer(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument.ctypes.data
    return argument if isinstance(argument, bytes) else ctypes.addressof(argument)


_NOGIL = {name: _function(name) for name in _ARGUMENTS}
RELEASES_GIL = None not in _NOGIL.values()


def _nogil(name: str) -> Call:
    function = _NOGIL[name]
    assert function is not None
    return function


def cholesky(matrix: Matrix) -> Matrix:
    """Return the lower Cholesky factor of a symmetric matrix, which is overwritten.

    Above the diagonal it has the entries of the matrix. Raise `LinAlgError` if the
    matrix is not positive definite.
    """
    factor = np.asfortranarray(matrix.T, np.float64)  # symmetric: no copy
    n = len(factor)
    if RELEASES_GIL:
        info = _nogil("dpotrf")(b"L", n, factor, n)
    else:
        factor, info = lapack.dpotrf(factor, lower=1, clean=0, overwrite_a=1)
    if info:
        raise LinAlgError("the matrix is not positive definite")
    return factor


def cholesky_inverse(factor: Matrix) -> Matrix:
    """Return the lower triangle of the inverse of the matrix that has this factor."""
    inverse, n = np.array(factor, np.float64, order="F"), len(factor)
    if RELEASES_GIL:
        _nogil("dpotri")(b"L", n, inverse, n)
        return inverse
    return np.asarray(lapack.dpotri(inverse, lower=1, overwrite_c=1)[0])


def cholesky_solve(factor: Matrix, B: Matrix) -> Matrix:
    """Solve for columns, with the factor of the matrix."""
    found, n = np.array(B, np.float64, order="F"), len(factor)
    if RELEASES_GIL:
        _nogil("dpotrs")(b"L", n, found.shape[1], factor, n, found, n)
        return found
    return np.asarray(lapack.dpotrs(factor, found, lower=1, overwrite_b=1)[0])


def tridiagonal(matrix: Matrix) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return both diagonals of a similar tridiagonal matrix, reflectors and factors.

    The last two are for :func:`back_transform`. Needs :data:`RELEASES_GIL`.
    """
    reflectors, n = np.array(matrix.T, np.float64, order="F"), len(matrix)
    work = np.empty(64 * n)
    d, e, tau = np.empty(n), np.empty(n - 1), np.empty(n - 1)
    _check_info(_nogil("dsytrd")(b"L", n, reflectors, n, d, e, tau, work, work.size))
    return d, e, reflectors, tau


def tridiagonal_eigenpairs(d: Matrix, e: Matrix) -> tuple[Matrix, Matrix]:
    """Return the eigenvalues of a tridiagonal matrix, ascending, and their vectors."""
    n = len(d)
    values, vectors = d.copy(), np.empty((n, n), order="F")
    work, whole = np.empty(1 + 4 * n + n * n), np.empty(3 + 5 * n, np.intc)
    _check_info(
        _nogil("dstevd")(
            *(b"V", n, values, e.copy(), vectors, n),
            *(work, work.size, whole, whole.size),
        )
    )
    return values, vectors


def back_transform(reflectors: Matrix, tau: Matrix, vectors: Matrix) -> None:
    """Turn eigenvectors of the tridiagonal matrix, in place, into the original's."""
    n, k = vectors.shape
    below = np.asfortranarray(reflectors[1:, :-1])
    rest = np.asfortranarray(vectors[1:])
    work = np.empty(64 * k)
    _check_info(
        _nogil("dormqr")(
            *(b"L", b"N", n - 1, k, n - 1, below, n - 1, tau, rest, n - 1),
            *(work, work.size),
        )
    )
    vectors[1:] = rest


def _check_info(info: int) -> None:
    if info:
        raise LinAlgError(f"LAPACK says {info}")
