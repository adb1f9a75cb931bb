import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel, sigmoid_kernel
from sklearn.preprocessing import KernelCenterer

from brainweave.exceptions import InputError
from brainweave.kernels import DEFAULT_HP, Kernel, center_gram, check_kernel


def evaluate(kernel, A, B):
    constant = {"gaussian": 1, "quadratic": (kernel.hp or 0) ** 2}.get(kernel.name, 0)
    return constant + kernel.up_to_constant(A @ B.T, (A**2).sum(1), (B**2).sum(1))


@pytest.mark.parametrize(
    ("name", "hp", "reference"),
    [
        ("linear", None, lambda A, B: A @ B.T),
        ("gaussian", 7.0, lambda A, B: rbf_kernel(A, B, gamma=1 / 7)),
        ("quadratic", 3.0, lambda A, B: polynomial_kernel(A, B, 2, gamma=1, coef0=3)),
        ("sigmoid", 5.0, lambda A, B: sigmoid_kernel(A, B, gamma=1 / 5, coef0=0)),
    ],
)
def test_kernels_equal_scikit_learn(rng, name, hp, reference):
    A, B = rng.normal(size=(6, 9)), rng.normal(size=(4, 9))
    found = evaluate(Kernel(name, hp), A, B)
    assert_allclose(found, reference(A, B), rtol=1e-12, atol=1e-14)


def test_centring_equals_scikit_learn(rng):
    A, B = rng.normal(size=(8, 5)) + 2, rng.normal(size=(3, 5))
    gram, cross = np.exp(A @ A.T / 9), np.exp(B @ A.T / 9)
    centred, centring = center_gram(gram)
    reference = KernelCenterer().fit(gram)
    assert_allclose(centred, reference.transform(gram), atol=1e-12)
    assert_allclose(centring.new(cross), reference.transform(cross), atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["linear", "gaussian", "quadratic"]))
def test_gram_matrices_are_symmetric_and_positive(seed, name):
    A = np.random.default_rng(seed).normal(size=(12, 30))
    kernel = check_kernel(name)
    gram = evaluate(kernel, A, A)
    assert_allclose(gram, gram.T, rtol=1e-12)
    values = np.linalg.eigvalsh(center_gram(gram)[0])
    assert values.min() > -1e-9 * values.max()


def test_defaults_are_those_of_the_supplement():
    assert DEFAULT_HP == {"gaussian": 5000.0, "quadratic": 100.0, "sigmoid": 200.0}
    assert check_kernel("gaussian").hp == 5000.0
    assert check_kernel("linear").hp is None


def test_a_callable_takes_no_parameters():
    with pytest.raises(InputError, match=r"functools\.partial"):
        check_kernel(np.dot, {"hp": 1})
