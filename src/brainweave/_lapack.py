"""LAPACK without Python's lock, so that subjects in threads do not wait for each other.

SciPy's wrappers of LAPACK hold the lock. What SciPy offers to compiled code
(:mod:`scipy.linalg.cython_lapack`) is called here by ctypes, which lets it go. Where
its functions are not declared as expected (:data:`IS_FREE` is False), the wrappers are
called.
"""

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cython_lapack, lapack

from brainweave._arrays import Matrix

_ARGUMENTS = {  # besides the last, which says whether it went well
    "dpotrf": "char int d int",
    "dpotri": "char int d int",
    "dpotrs": "char int int d int d int",
    "dsytrd": "char int d int d d d d int",
    "dstevd": "char int d d d int d int int int",
    "dormqr": "char char int int int d int d d int d int",
}
Call = Callable[..., int]


def _declared(capsule: Any) -> tuple[str, int]:
    """Return how a function is declared, and its address."""
    api = ctypes.pythonapi
    name, pointer = api.PyCapsule_GetName, api.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    declared: bytes = name(capsule)
    plain = re.sub(r"__pyx_t\w+_d\b", "d", declared.decode())
    return plain, pointer(capsule, declared)


def _function(name: str) -> Call | None:
    """Return a function of LAPACK, which takes arrays as they are; None if unknown.

    It returns what LAPACK says at the end: 0 if all went well.
    """
    kinds = [*_ARGUMENTS[name].split(), "int"]
    wanted = f"void ({', '.join(f'{kind} *' for kind in kinds)})"
    try:
        declared, address = _declared(cython_lapack.__pyx_capi__[name])
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


_FREE = {name: _function(name) for name in _ARGUMENTS}
IS_FREE = None not in _FREE.values()


def _free(name: str) -> Call:
    function = _FREE[name]
    assert function is not None
    return function


def cholesky(matrix: Matrix) -> Matrix:
    """Return the lower Cholesky factor of a symmetric matrix, which is overwritten.

    Above its diagonal stands what stood there. `LinAlgError` if there is none.
    """
    factor = np.asfortranarray(matrix.T, np.float64)  # symmetric: no copy
    n = len(factor)
    if IS_FREE:
        info = _free("dpotrf")(b"L", n, factor, n)
    else:
        factor, info = lapack.dpotrf(factor, lower=1, clean=0, overwrite_a=1)
    if info:
        raise LinAlgError("the matrix is not positive definite")
    return factor


def cholesky_inverse(factor: Matrix) -> Matrix:
    """Return the lower triangle of the inverse of the matrix that has this factor."""
    inverse, n = np.array(factor, np.float64, order="F"), len(factor)
    if IS_FREE:
        _free("dpotri")(b"L", n, inverse, n)
        return inverse
    return np.asarray(lapack.dpotri(inverse, lower=1, overwrite_c=1)[0])


def cholesky_solve(factor: Matrix, B: Matrix) -> Matrix:
    """Solve for columns, with the factor of the matrix."""
    found, n = np.array(B, np.float64, order="F"), len(factor)
    if IS_FREE:
        _free("dpotrs")(b"L", n, found.shape[1], factor, n, found, n)
        return found
    return np.asarray(lapack.dpotrs(factor, found, lower=1, overwrite_b=1)[0])


def tridiagonal(matrix: Matrix) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return the diagonals of a similar tridiagonal matrix, and the reflections to it.

    These, and their factors, are for :func:`turn_back`. Needs :data:`IS_FREE`.
    """
    turned, n = np.array(matrix.T, np.float64, order="F"), len(matrix)
    work = np.empty(64 * n)
    d, e, tau = np.empty(n), np.empty(n - 1), np.empty(n - 1)
    _went_well(_free("dsytrd")(b"L", n, turned, n, d, e, tau, work, work.size))
    return d, e, turned, tau


def tridiagonal_eigenpairs(d: Matrix, e: Matrix) -> tuple[Matrix, Matrix]:
    """Return the eigenvalues of a tridiagonal matrix, ascending, and their vectors."""
    n = len(d)
    values, vectors = d.copy(), np.empty((n, n), order="F")
    work, whole = np.empty(1 + 4 * n + n * n), np.empty(3 + 5 * n, np.intc)
    _went_well(
        _free("dstevd")(
            *(b"V", n, values, e.copy(), vectors, n),
            *(work, work.size, whole, whole.size),
        )
    )
    return values, vectors


def turn_back(turned: Matrix, tau: Matrix, vectors: Matrix) -> None:
    """Turn vectors of the tridiagonal matrix, in place, to those of the first one."""
    n, k = vectors.shape
    below = np.asfortranarray(turned[1:, :-1])
    rest = np.asfortranarray(vectors[1:])
    work = np.empty(64 * k)
    _went_well(
        _free("dormqr")(
            *(b"L", b"N", n - 1, k, n - 1, below, n - 1, tau, rest, n - 1),
            *(work, work.size),
        )
    )
    vectors[1:] = rest


def _went_well(info: int) -> None:
    if info:
        raise LinAlgError(f"LAPACK says {info}")
