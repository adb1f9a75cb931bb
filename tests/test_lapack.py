"""LAPACK without Python's lock: the same numbers, and threads that do not wait."""

import threading
import time

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose

from brainweave._core import lapack as _lapack
from brainweave._core.lapack import (
    _function,
    back_transform,
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    tridiagonal,
    tridiagonal_eigenpairs,
)
from brainweave._core.workers import blas_threads
from brainweave.basis.linalg import leading_eigenpairs


@pytest.fixture(params=[True, False], ids=["free", "held"])
def either(request, monkeypatch):
    monkeypatch.setattr(_lapack, "RELEASES_GIL", request.param)


def positive(rng, n):
    X = rng.normal(size=(n, n + 5))
    return X @ X.T


def test_it_is_free_here():
    assert _lapack.RELEASES_GIL


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n", [1, 2, 37])
def test_factor_inverse_and_solution(either, rng, n, order):
    A = positive(rng, n)
    factor = cholesky(np.array(A, order=order))
    L = np.tril(factor)
    assert_allclose(L @ L.T, A, rtol=1e-10, atol=1e-10)
    kept, B = factor.copy(), rng.normal(size=(n, 3))
    for columns in (B, np.asfortranarray(B), B.astype(np.float32)):
        given = columns.copy()
        found = cholesky_solve(factor, columns)
        assert_allclose(A @ found, columns, atol=1e-6)
        assert_allclose(columns, given, rtol=0)
    inverse = np.tril(cholesky_inverse(factor))
    assert_allclose(inverse, np.tril(np.linalg.inv(A)), rtol=1e-7, atol=1e-9)
    assert_allclose(factor, kept, rtol=0)


def test_a_matrix_in_the_order_of_rows_is_overwritten(rng):
    A = positive(rng, 6)
    factor = cholesky(A)
    assert np.shares_memory(A, factor)


def test_what_is_not_positive_definite_has_no_factor(either):
    with pytest.raises(scipy.linalg.LinAlgError, match="not positive definite"):
        cholesky(np.diag([1.0, -1.0, 2.0]))


def test_eigenvectors_are_turned_back(rng):
    A = positive(rng, 30)
    d, e, turned, tau = tridiagonal(A)
    values, vectors = tridiagonal_eigenpairs(d, e)
    T = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    assert_allclose(T @ vectors, vectors * values, atol=1e-9)
    some = vectors[:, -4:].copy(order="F")
    back_transform(turned, tau, some)
    assert_allclose(A @ some, some * values[-4:], atol=1e-8)
    assert_allclose(some.T @ some, np.eye(4), atol=1e-12)


def test_lapack_has_the_room_that_it_needs(rng, monkeypatch):
    """It does not see how large arrays are, and would write behind them."""
    given = {}

    def watched(name):
        call = _lapack._NOGIL[name]

        def record(*arguments):
            given[name] = arguments
            return call(*arguments)

        return record

    monkeypatch.setattr(_lapack, "_NOGIL", {n: watched(n) for n in _lapack._NOGIL})
    n, k = 30, 4
    d, e, turned, tau = tridiagonal(positive(rng, n))
    _, vectors = tridiagonal_eigenpairs(d, e)
    back_transform(turned, tau, vectors[:, :k].copy(order="F"))
    needed = {
        "dsytrd": {2: n * n, 4: n, 5: n - 1, 6: n - 1, 7: n},
        "dstevd": {2: n, 3: n - 1, 4: n * n, 6: 1 + 4 * n + n * n, 8: 3 + 5 * n},
        "dormqr": {5: (n - 1) ** 2, 7: n - 1, 8: (n - 1) * k, 10: k},
    }
    for name, sizes in needed.items():
        for place, size in sizes.items():
            assert given[name][place].size >= size, (name, place)
    assert given["dsytrd"][8] == given["dsytrd"][7].size
    assert given["dstevd"][7] == given["dstevd"][6].size
    assert given["dstevd"][9] == given["dstevd"][8].size
    assert given["dormqr"][11] == given["dormqr"][10].size
    assert given["dstevd"][8].itemsize == 4


def test_what_lapack_refuses_is_an_error():
    with pytest.raises(scipy.linalg.LinAlgError, match="LAPACK says 3"):
        _lapack._check_info(3)


def test_a_function_that_is_declared_otherwise_is_not_called(monkeypatch):
    assert _function("dpotrf") is not None
    monkeypatch.setitem(_lapack._ARGUMENTS, "dpotrf", "char long d long")
    assert _function("dpotrf") is None
    monkeypatch.setitem(_lapack._ARGUMENTS, "dnothing", "char")
    assert _function("dnothing") is None


@pytest.mark.parametrize("free", [True, False])
def test_leading_eigenpairs_with_and_without(rng, monkeypatch, free):
    import brainweave.basis.linalg

    monkeypatch.setattr(brainweave.basis.linalg, "RELEASES_GIL", free)
    A = positive(rng, 300)
    values, vectors = leading_eigenpairs(A, lambda values: 7)
    assert_allclose(values, np.linalg.eigvalsh(A)[::-1], atol=1e-8 * values[0])
    assert_allclose(A @ vectors[:, :7], vectors[:, :7] * values[:7], atol=1e-7)


def test_the_lock_is_free_while_it_works(rng):
    """A clock in another thread ticks on."""
    A, ticks, done = positive(rng, 1500), [], threading.Event()

    def tick():
        while not done.wait(0.001):
            ticks.append(time.perf_counter())

    clock = threading.Thread(target=tick)
    clock.start()
    try:
        with blas_threads(1):
            begun = time.perf_counter()
            cholesky_inverse(cholesky(A))
            ended = time.perf_counter()
    finally:
        done.set()
        clock.join()
    inside = [t for t in ticks if begun < t < ended]
    # with the lock held it would tick once or twice, between the calls
    assert len(inside) > (ended - begun) / 0.02
    assert len(inside) > 3
