"""Checks that every aligner must pass, ours and those of others.

:func:`check_aligner` runs all of them on an estimator; ``CHECKS`` lists them by name.
Each takes a :class:`Case` and raises an AssertionError. An estimator that cannot pass
one is excused by name, with a sentence that says why.
"""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal, assert_raises_regex
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap

__all__ = ["CHECKS", "Case", "check_aligner"]

N_SUBJECTS, N_SAMPLES, N_CATEGORIES = 4, 24, 4


@dataclass
class Case:
    """An estimator, what it needs to be fitted, and what it is excused from.

    Parameters
    ----------
    estimator : aligner
        Unfitted; it is copied, not changed.
    voxels : tuple of int, default=(40, 36, 44, 30)
        Of the four subjects; equal numbers for methods that compare voxel by voxel.
    labels : bool, default=False
        Whether the samples are labelled with four categories.
    excused : dict of str to str
        Names of checks that do not apply, and why.
    """

    estimator: BaseAligner
    voxels: tuple[int, ...] = (40, 36, 44, 30)
    labels: bool = False
    excused: dict[str, str] = field(default_factory=dict)

    def study(self, dtype: Any = np.float64) -> tuple[list[Any], list[Any] | None]:
        """Return samples that share a response of four dimensions, and their labels."""
        rng = np.random.default_rng(7)
        y = np.arange(N_SAMPLES) % N_CATEGORIES
        shared = 3 * rng.normal(size=(N_CATEGORIES, 4))[y]
        shared = shared + rng.normal(size=shared.shape)
        X = []
        for v in self.voxels:
            x = shared @ rng.normal(size=(4, v)) + 0.5 * rng.normal(size=(N_SAMPLES, v))
            X.append((2 * x + 10 * rng.normal(size=v)).astype(dtype))
        return X, [y.copy() for _ in X] if self.labels else None

    def new(self) -> Any:
        """Return an unfitted copy of the estimator."""
        return clone(self.estimator)


def _fit(case: Case) -> tuple[Any, list[Any], list[Any] | None]:
    X, y = case.study()
    return case.new().fit(X, y), X, y


def _assert_alike(ours: list[Any], theirs: list[Any], tolerance: float) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert_allclose(a, b, atol=tolerance * np.abs(b).max())


def check_parameters(case: Case) -> None:
    """Check: the constructor only stores, and clone and set_params work."""
    params = case.estimator.get_params(deep=False)
    assert set(vars(case.estimator)) == set(params), "the constructor only stores"
    assert {"standardize", "n_jobs"} <= set(params)
    other = clone(case.estimator)
    assert repr(other) == repr(case.estimator)
    assert other.set_params(standardize=False).get_params()["standardize"] is False


def check_fit_and_transform(case: Case) -> None:
    """Check: ``fit`` returns itself; ``transform`` gives as ``fit_transform`` does."""
    (X, y), fitted = case.study(), case.new()
    assert fitted.fit(X, y) is fitted
    assert fitted.n_subjects_ == len(fitted.maps_) == N_SUBJECTS
    assert all(isinstance(m, SubjectMap) for m in fitted.maps_)
    before, after = (e.get_params(deep=False) for e in (case.estimator, fitted))
    assert repr(after) == repr(before)
    whole, together = fitted.transform(X), case.new().fit_transform(X, y)
    assert {f.shape for f in together} == {(N_SAMPLES, fitted.n_components_)}
    _assert_alike(whole, together, 1e-7)
    _assert_alike(fitted.transform([x[3:4] for x in X]), [w[3:4] for w in whole], 1e-6)
    _assert_alike(fitted.transform([X[2]], subjects=[2]), [whole[2]], 1e-10)
    for x, given in zip(X, case.study()[0], strict=True):
        assert_array_equal(x, given)


def check_mean_is_removed(case: Case) -> None:
    """Check: features have mean zero, whatever the mean of the voxels."""
    fitted, X, y = _fit(case)
    features = fitted.transform(X)
    for f in features:
        assert_allclose(f.mean(axis=0), 0, atol=1e-7 * np.abs(f).max())
    offset = [x + 100.0 for x in X]
    _assert_alike(case.new().fit(offset, y).transform(offset), features, 1e-5)


def check_different_voxel_counts(case: Case) -> None:
    """Check: subjects may have different numbers of voxels."""
    other = Case(case.estimator, (40, 31, 50, 20), case.labels)
    fitted, X, _ = _fit(other)
    shapes = {f.shape for f in fitted.transform(X)}
    assert shapes == {(N_SAMPLES, fitted.n_components_)}


def check_sample_types(case: Case) -> None:
    """Check: single precision stays single; whole numbers and dead voxels are taken."""
    X, y = case.study(np.float32)
    features = case.new().fit(X, y).transform(X)
    assert {f.dtype for f in features} == {np.dtype(np.float32)}
    double = [x.astype(np.float64) for x in X]
    expected = case.new().fit(double, y).transform(double)
    assert {f.dtype for f in expected} == {np.dtype(np.float64)}
    _assert_alike(features, expected, 2e-3)
    whole = [np.round(10 * x).astype(np.int16) for x in double]
    whole[0][:, 4] = 7
    features = case.new().fit_transform(whole, y)
    assert {f.dtype for f in features} == {np.dtype(np.float64)}
    assert all(np.isfinite(f).all() for f in features)


def check_same_result(case: Case) -> None:
    """Check: features are alike whatever ``n_jobs``, and after pickling."""
    X, y = case.study()
    one, two = (case.new().set_params(n_jobs=n).fit(X, y) for n in (1, 2))
    expected = one.transform(X)
    _assert_alike(two.transform(X), expected, 1e-9)
    again = pickle.loads(pickle.dumps(one))  # of this process, from no file
    _assert_alike(again.transform(X), expected, 1e-10)


def check_wrong_input(case: Case) -> None:
    """Check: what cannot be fitted or mapped is refused, with subject and reason."""
    X, y = case.study()
    with assert_raises_regex(NotFittedError, ""):
        case.new().transform(X)
    with assert_raises_regex(TypeError, "list with one array"):
        case.new().fit(X[0], y)
    with assert_raises_regex(ValueError, "at least 2 subject"):
        case.new().fit(X[:1], None if y is None else y[:1])
    bad = {"standardize": "yes", "energy": 0, "n_components": 2.5}
    for name in bad.keys() & case.estimator.get_params().keys():
        with assert_raises_regex((TypeError, ValueError), name):
            case.new().set_params(**{name: bad[name]}).fit(X, y)
    fitted = case.new().fit(X, y)
    with assert_raises_regex(ValueError, r"\d+ voxels"):
        fitted.transform([x[:, :-1] for x in X])
    with assert_raises_regex(ValueError, "Unknown subject 9"):
        fitted.transform([X[0]], subjects=[9])
    with assert_raises_regex(ValueError, "2 arrays for 4 subjects"):
        fitted.transform(X[:2])
    X = [x.copy() for x in X]
    X[1][2, 5] = np.nan
    with assert_raises_regex(ValueError, r"X\[1\].*NaN or infinite"):
        case.new().fit(X, y)
    X[1][2, 5] = np.inf
    with assert_raises_regex(ValueError, r"X\[1\].*NaN or infinite"):
        fitted.transform(X)


def check_new_subject(case: Case) -> None:
    """Check: a new subject joins, and the model stays as it is."""
    fitted, X, y = _fit(case)
    before = fitted.transform(X)
    new = fitted.fit_new_subject(X[1], None if y is None else y[1])
    assert isinstance(new, SubjectMap)
    # a subject of the fit, met again, goes where it was
    mapped = new.transform(X[1]).ravel()
    assert np.corrcoef(mapped, before[1].ravel())[0, 1] > 0.8
    for a, b in zip(fitted.transform(X), before, strict=True):
        assert_array_equal(a, b)


def check_way_back(case: Case) -> None:
    """Check: features lead back to voxels of their type, and zeros to the mean."""
    fitted, X, _ = _fit(case)
    shared = fitted.transform(X)
    voxels = fitted.inverse_transform(shared)
    for v, x in zip(voxels, X, strict=True):
        assert v.shape == x.shape
        assert np.corrcoef((v - x.mean(0)).ravel(), (x - x.mean(0)).ravel())[0, 1] > 0.5
    zeros = [np.zeros_like(s) for s in shared]
    for v, x in zip(fitted.inverse_transform(zeros), X, strict=True):
        assert_allclose(v, np.broadcast_to(x.mean(axis=0), v.shape), rtol=1e-6)
    assert fitted.predict_subject(0, X[1:]).shape == X[0].shape


def check_fit_on_bases(case: Case) -> None:
    """Check: bases of a fit serve instead of the samples."""
    fitted, X, y = _fit(case)
    again = case.new().fit(fitted.bases_, y)
    _assert_alike(again.transform(X), fitted.transform(X), 1e-9)


#: Every check by its name.
CHECKS: dict[str, Callable[[Case], None]] = {
    name.removeprefix("check_"): function
    for name, function in list(globals().items())
    if name.startswith("check_")
}


def check_aligner(estimator: BaseAligner | Case, **options: Any) -> None:
    """Run every check from which the estimator is not excused.

    Parameters
    ----------
    estimator : aligner, or Case
        Unfitted. A Case brings its own options.
    **options
        The `voxels`, `labels` and `excused` of its :class:`Case`.

    Raises
    ------
    AssertionError
        At the first check that fails; notes on it name the check.

    Examples
    --------
    >>> from brainweave import DetSRM
    >>> check_aligner(DetSRM(4, random_state=0))
    """
    case = estimator if isinstance(estimator, Case) else Case(estimator, **options)
    if unknown := set(case.excused) - set(CHECKS):
        raise ValueError(
            f"excused names no checks: {', '.join(sorted(unknown))}; there are "
            f"{', '.join(CHECKS)}."
        )
    for name in [name for name in CHECKS if name not in case.excused]:
        try:
            CHECKS[name](case)
        except Exception as error:
            error.add_note(f"in the check {name!r} of {type(case.estimator).__name__}")
            raise
