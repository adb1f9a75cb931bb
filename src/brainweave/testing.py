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


def check_fit_returns_self(case: Case) -> None:
    """Check: ``fit`` returns the estimator, with a map per subject, as it was set."""
    estimator = case.new()
    assert estimator.fit(*case.study()) is estimator
    assert estimator.n_subjects_ == len(estimator.maps_) == N_SUBJECTS
    assert all(isinstance(m, SubjectMap) for m in estimator.maps_)
    after = estimator.get_params(deep=False)
    assert repr(after) == repr(case.estimator.get_params(deep=False))


def check_fit_transform(case: Case) -> None:
    """Check: ``fit_transform`` is ``fit`` and then ``transform``; inputs stay alike."""
    fitted, X, y = _fit(case)
    together = case.new().fit_transform(X, y)
    assert {f.shape for f in together} == {(N_SAMPLES, fitted.n_components_)}
    _assert_alike(fitted.transform(X), together, 1e-7)
    for x, before in zip(X, case.study()[0], strict=True):
        assert_array_equal(x, before)


def check_mean_is_removed(case: Case) -> None:
    """Check: features have mean zero, whatever the mean of the voxels."""
    fitted, X, y = _fit(case)
    features = fitted.transform(X)
    for f in features:
        assert_allclose(f.mean(axis=0), 0, atol=1e-7 * np.abs(f).max())
    offset = [x + 100.0 for x in X]
    _assert_alike(case.new().fit(offset, y).transform(offset), features, 1e-5)


def check_some_samples_and_subjects(case: Case) -> None:
    """Check: samples are mapped alike alone, in a set, and with some subjects only."""
    fitted, X, _ = _fit(case)
    whole = fitted.transform(X)
    _assert_alike(fitted.transform([x[3:4] for x in X]), [w[3:4] for w in whole], 1e-6)
    _assert_alike(fitted.transform([X[2]], subjects=[2]), [whole[2]], 1e-10)


def check_different_voxel_counts(case: Case) -> None:
    """Check: subjects may have different numbers of voxels."""
    other = Case(case.estimator, (40, 31, 50, 20), case.labels)
    fitted, X, _ = _fit(other)
    shapes = {f.shape for f in fitted.transform(X)}
    assert shapes == {(N_SAMPLES, fitted.n_components_)}


def check_float32(case: Case) -> None:
    """Check: single precision stays single, and is close to double."""
    X, y = case.study(np.float32)
    single = case.new().fit(X, y)
    features = single.transform(X)
    assert {f.dtype for f in features} == {np.dtype(np.float32)}
    double = [x.astype(np.float64) for x in X]
    expected = case.new().fit(double, y).transform(double)
    assert {f.dtype for f in expected} == {np.dtype(np.float64)}
    _assert_alike(features, expected, 2e-3)


def check_odd_samples(case: Case) -> None:
    """Check: samples may be whole numbers, and a voxel may never change."""
    X, y = case.study()
    X = [np.round(10 * x).astype(np.int16) for x in X]
    X[0][:, 4] = 7
    features = case.new().fit_transform(X, y)
    assert {f.dtype for f in features} == {np.dtype(np.float64)}
    assert all(np.isfinite(f).all() for f in features)


def check_nan_is_refused(case: Case) -> None:
    """Check: NaN and infinity are refused, and the subject is named."""
    (fitted, _, y), (X, _) = _fit(case), case.study()
    X[1][2, 5] = np.nan
    with assert_raises_regex(ValueError, r"X\[1\].*NaN or infinite"):
        case.new().fit(X, y)
    X[1][2, 5] = np.inf
    with assert_raises_regex(ValueError, r"X\[1\].*NaN or infinite"):
        fitted.transform(X)


def check_pickling(case: Case) -> None:
    """Check: a fitted aligner maps alike after pickling."""
    fitted, X, _ = _fit(case)
    again = pickle.loads(pickle.dumps(fitted))
    _assert_alike(again.transform(X), fitted.transform(X), 1e-10)


def check_same_result_whatever_n_jobs(case: Case) -> None:
    """Check: the result does not depend on ``n_jobs``."""
    X, y = case.study()
    one, two = (case.new().set_params(n_jobs=n).fit(X, y).transform(X) for n in (1, 2))
    _assert_alike(two, one, 1e-9)


def check_wrong_input(case: Case) -> None:
    """Check: what cannot be fitted or mapped is refused, with the reason."""
    X, y = case.study()
    with assert_raises_regex(NotFittedError, ""):
        case.new().transform(X)
    with assert_raises_regex(TypeError, "list with one array"):
        case.new().fit(X[0], y)
    with assert_raises_regex(ValueError, "at least 2 subject"):
        case.new().fit(X[:1], None if y is None else y[:1])
    fitted = case.new().fit(X, y)
    with assert_raises_regex(ValueError, r"\d+ voxels"):
        fitted.transform([x[:, :-1] for x in X])
    with assert_raises_regex(ValueError, "Unknown subject 9"):
        fitted.transform([X[0]], subjects=[9])
    with assert_raises_regex(ValueError, "2 arrays for 4 subjects"):
        fitted.transform(X[:2])


def check_bad_settings(case: Case) -> None:
    """Check: settings that make no sense are refused by name, or warned of."""
    known = case.estimator.get_params()
    bad = {"standardize": "yes", "energy": 0, "n_components": 2.5}
    for name in [name for name in bad if name in known]:
        with assert_raises_regex((TypeError, ValueError), name):
            case.new().set_params(**{name: bad[name]}).fit(*case.study())


def check_new_subject(case: Case) -> None:
    """Check: a new subject joins, and the model stays as it is."""
    fitted, X, y = _fit(case)
    before = fitted.transform(X)
    new = fitted.fit_new_subject(X[1], None if y is None else y[1])
    assert isinstance(new, SubjectMap)
    mapped = new.transform(X[1])
    # a subject of the fit, met again, goes where it was
    correlation = np.corrcoef(mapped.ravel(), before[1].ravel())[0, 1]
    assert correlation > 0.8
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
