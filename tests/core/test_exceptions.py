"""Warnings name the line of the user, not one of the package or its libraries."""

import warnings
from inspect import currentframe

import numpy as np
import pytest

from brainweave import GDM, DetSRM, LabelWarning, Parcelwise, SkippedWarning
from brainweave._core.exceptions import warn_user


def samples(rng):
    """Samples of three subjects; most voxels of the second are constant."""
    X = [rng.normal(size=(20, 12)) for _ in range(3)]
    X[1][:, :8] = 1.0
    return X


@pytest.mark.parametrize("method", ["fit", "fit_transform"])
@pytest.mark.parametrize("parcels", [None, np.repeat([1, 2], 6)])
def test_a_fit_blames_the_line_that_asked_for_it(rng, method, parcels):
    aligner = DetSRM(2, random_state=0, tol=1e-2)
    if parcels is not None:
        aligner = Parcelwise(aligner, parcels)
    fit, X = getattr(aligner, method), samples(rng)
    line = currentframe().f_lineno + 2
    with pytest.warns(SkippedWarning) as caught:
        fit(X)
    assert {(w.filename, w.lineno) for w in caught} == {(__file__, line)}


def test_a_subject_that_joins_blames_the_line_that_adds_it(rng):
    X, y = [rng.normal(size=(20, 12)) for _ in range(3)], [list("abcde" * 4)] * 3
    model = GDM(2).fit(X, y)
    line = currentframe().f_lineno + 2
    with pytest.warns(LabelWarning, match="missing label") as caught:
        model.fit_new_subject(X[0], ["nan", *"bcde"] * 4)
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)


def test_a_warning_is_shown_once_for_each_line_of_the_user():
    def warn_twice():
        for _ in range(2):
            warn_user("odd")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warn_twice()
        warn_twice()
    assert [w.category for w in caught] == [UserWarning]


def test_code_without_a_module_is_warned_too():
    with pytest.warns(UserWarning, match="odd") as caught:
        exec("warn('odd')", {"warn": warn_user})
    assert caught[0].filename == "<string>"
