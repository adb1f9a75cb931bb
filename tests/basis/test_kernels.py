import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel, sigmoid_kernel
from sklearn.preprocessing import KernelCenterer

from brainweave import GDM
from brainweave._core.exceptions import InputError
from brainweave.basis.kernels import (
    DEFAULT_HP,
    Kernel,
    center_gram,
    check_kernel,
    check_precomputed,
    is_symmetric,
)
from evaluation_studies import three_subjects


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
    assert_allclose(centring.center_new(cross), reference.transform(cross), atol=1e-12)


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
    with pytest.raises(InputError, match="take none"):
        check_kernel(np.dot, {"hp": 1})


@pytest.mark.parametrize(
    ("kernel", "params", "error", "message"),
    [
        ("cosine", None, InputError, "callable or one of 'linear', .* got 'cosine'"),
        (3, None, InputError, "got 3"),
        ("linear", {"hp": 1}, InputError, "take none. Got {'hp': 1} for 'linear'"),
        (
            "gaussian",
            {"gamma": 1},
            InputError,
            "must be {'hp': number}.* Got {'gamma': 1}",
        ),
        ("gaussian", 5000, TypeError, "Got 5000"),
        *(
            ("gaussian", {"hp": hp}, (InputError, TypeError), "hp .* must be .*> 0")
            for hp in (0, -1, np.inf, np.nan, True, "5")
        ),
    ],
)
def test_kernels_that_do_not_exist_are_refused(kernel, params, error, message):
    with pytest.raises(error, match=message):
        check_kernel(kernel, params)


def test_a_kernel_that_was_checked_stays_what_it_is():
    kernel = check_kernel("sigmoid", {"hp": 3})
    assert check_kernel(kernel) is kernel
    assert kernel.hp == 3.0


def test_only_named_kernels_of_samples_follow_from_products():
    kernels = ("linear", "gaussian", "precomputed", np.dot)
    assert [check_kernel(k).from_products for k in kernels] == [
        True,
        True,
        False,
        False,
    ]


def test_centring_writes_into_a_gram_matrix_only_if_asked(rng):
    gram = np.exp(rng.normal(size=(5, 5)))
    gram = gram + gram.T
    before = gram.copy()
    centred, _ = center_gram(gram)
    assert np.array_equal(gram, before)
    assert center_gram(gram, overwrite=True)[0] is gram
    assert_allclose(gram, centred, rtol=1e-15)


def test_rounding_makes_no_gaussian_kernel_exceed_one():
    one = np.ones(1)
    products = np.array([[1 + 1e-9]])  # more than the squared norms allow
    assert Kernel("gaussian", 1e-6).up_to_constant(products, one, one) == 0


def test_symmetric_is_up_to_single_precision(rng):
    A = rng.normal(size=(6, 6))
    A = A + A.T
    for changed, symmetric in ((1e-6, True), (1e-4, False)):
        B = A.copy()
        B[2, 4] *= 1 + changed
        assert is_symmetric(B) is symmetric
    A[1, 3], A[3, 1] = 1e-9, 0.0  # of entries near 1
    assert is_symmetric(A)
    assert not is_symmetric(1e-9 * np.triu(np.ones((3, 3))))


def test_one_weak_sample_makes_no_others_alike():
    gram = np.diag([1.0, 1.0, 1e-3]) + 1e-10
    kernel = Kernel("callable", function=np.dot)
    with pytest.raises(InputError, match="finds no two samples alike"):
        kernel.check_gram(gram, "X[1]")
    kernel.check_gram(gram + 1e-7, "X[1]")


def test_what_is_no_gram_matrix_is_refused(rng):
    gram = np.cov(rng.normal(size=(4, 9)))
    assert check_precomputed(gram, "X[1]") is gram
    broken = gram.copy()
    broken[2, 2] = np.inf
    for wrong in (gram[:, :3], gram * np.nan, broken, np.triu(gram)):
        with pytest.raises(InputError, match=r"X\[1\] must be a square, symmetric"):
            check_precomputed(wrong, "X[1]")


def test_a_large_hp_does_not_leave_one_dimension_in_silence():
    X, y = three_subjects()
    gdm = GDM(3, kernel="quadratic", kernel_params={"hp": 1e18}).fit(X, y)
    linear = GDM(3).fit(X, y)  # which the kernel tends to
    assert [b.n_kept for b in gdm.bases_] == [b.n_kept for b in linear.bases_]


def test_a_small_hp_that_makes_every_sample_unlike_is_refused():
    X, y = three_subjects()
    with pytest.raises(InputError, match=r"X\[0\].* no two samples alike"):
        GDM(3, kernel="gaussian", kernel_params={"hp": 1e-3}).fit(X, y)


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 1e30), ("float64", 1e100)])
def test_a_quadratic_kernel_that_overflows_is_refused(dtype, unit):
    X, y = three_subjects()
    large = [(x * unit).astype(dtype) for x in X]
    with pytest.raises(InputError, match=r"X\[0\].*(too large|overflows)"):
        GDM(3, kernel="quadratic", standardize=False).fit(large, y)
