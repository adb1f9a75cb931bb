"""Aligners of time-locked samples need a sample per row of whoever joins."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave._core.exceptions import InputError

ALIGNERS = [
    bw.GCCA(3, shrinkage=0.2),
    bw.RidgeAlignment(3, shrinkage=0.3),
    bw.ProMises(3),
    bw.Hyperalignment(3),
    bw.RegularizedHyperalignment(3, alpha=0.5),
    bw.SVDHyperalignment(3),
    bw.DetSRM(3, random_state=0),
    bw.SRM(3, random_state=0),
    bw.RobustSRM(3, random_state=0),
]


@pytest.fixture
def X(rng):
    shared = rng.normal(size=(24, 3))
    return [
        shared @ rng.normal(size=(3, 30)) + 0.3 * rng.normal(size=(24, 30))
        for _ in range(3)
    ]


@pytest.mark.parametrize("aligner", ALIGNERS, ids=lambda a: type(a).__name__)
def test_a_new_subject_has_a_sample_for_each_row(X, aligner):
    model = aligner.fit(X)
    assert model.fit_new_subject(X[0]).n_components == 3
    for rows in (X[0][1:], np.vstack([X[0], X[0][:1]])):
        message = (
            f"the new subject has {len(rows)} samples for 24 rows of the shared "
            "response. Give the aligning samples in their order, or use GDM, which "
            "joins by labels."
        )
        with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
            model.fit_new_subject(rows)


@pytest.mark.parametrize("aligner", ALIGNERS[3:6], ids=lambda a: type(a).__name__)
def test_some_of_the_rows_are_joined_by_those_of_the_template(X, aligner):
    """As evaluations do with people of whom only a part is known."""
    model = aligner.fit(X)
    rows = np.array([0, 2, 3, 7, 8, 11, 12, 15, 19, 20, 23])
    part, y = model._for_rows(rows, np.arange(24))
    assert y.tolist() == rows.tolist()
    assert_allclose(part.shared_response_, model.shared_response_[rows], rtol=0)
    assert len(model.shared_response_) == 24
    assert model._for_rows(rows, None)[1] is None
    own = part.fit_new_subject(X[0][rows])
    features, wanted = own.transform(X[0]), model.shared_response_
    for k in range(3):
        assert abs(np.corrcoef(features[:, k], wanted[:, k])[0, 1]) > 0.9
