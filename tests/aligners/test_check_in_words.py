"""The verdict of a check to the letter, and what each refusal says."""

import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave._core.exceptions import InputError
from brainweave.aligners.check.alignment_check import (
    AlignmentCheck,
    alignment_check,
    stored_check,
)


def check(p, agreement, n_together=1, **more):
    return AlignmentCheck(
        agreement_cv=np.array(agreement, float),
        p=np.array(p, float),
        n_together=n_together,
        n_permutations=199,
        **more,
    )


WORKED = "Alignment worked: on held-out samples, subjects agree in "
NOTHING = (
    "No evidence of a shared space: on held-out samples, subjects agree no "
    "more than by chance in "
)


@pytest.mark.parametrize(
    ("p", "agreement", "n_together", "words"),
    [
        ([0.005], [0.4], 1, WORKED + "the shared feature (correlation 0.40 "),
        ([0.2], [0.1], 1, NOTHING + "the shared feature (correlation 0.10 "),
        ([0.005, 0.01, 0.05], [0.4, 0.2, 0.0], 1,
         WORKED + "2 of 3 shared features (correlation of the first: 0.40 "),
        ([0.005, 0.01, 0.04], [0.4, 0.2, 0.0], 2,
         WORKED + "3 of 3 shared features (correlation of the first 2: 0.30 "),
        ([0.005, 0.01, 0.2], [0.4, 0.2, 0.0], 3,
         WORKED + "2 of 3 shared features (correlation 0.20 "),
        ([0.05, 0.3], [0.1, 0.0], 1,
         NOTHING + "any of 2 shared features (correlation of the first: 0.10 "),
    ],
)  # fmt: skip
def test_a_verdict_names_features_correlation_and_p(p, agreement, n_together, words):
    found = check(p, agreement, n_together)
    text = f"{words}without slow trends, p = {min(p):.2g})."
    assert found.verdict == str(found) == text
    assert repr(found) == f"AlignmentCheck({text})"
    assert found.available
    assert found.worked is (min(p) < 0.05)
    assert found.p_value == min(p)
    assert found.n_holding == sum(v < 0.05 for v in p)
    assert found.holds.tolist() == [v < 0.05 for v in p]
    assert found.agreement == pytest.approx(np.mean(agreement[:n_together]))


def test_a_verdict_of_pieces_is_that_of_the_clearest():
    table = pd.DataFrame({"p": [0.3, 0.01]}, pd.Index([4, 7], name="parcel"))
    found = check([0.3, 0.01], [0.1, 0.6], pieces=table)
    assert str(found) == (
        WORKED + "1 of 2 parcels (correlation in the clearest: 0.60 without slow "
        "trends, p = 0.01)."
    )
    none = check([0.3, 0.2], [0.5, 0.1], pieces=table)
    assert str(none).startswith(NOTHING + "any of 2 parcels (correlation in the cl")
    assert none.agreement == 0.1
    partly = check([np.nan, 0.01], [np.nan, 0.6], pieces=table)
    assert (partly.p_value, partly.agreement) == (0.01, 0.6)


def test_without_an_answer_the_reason_is_told():
    missing = AlignmentCheck("nothing was aligned.")
    assert (
        str(missing) == "Whether alignment worked was not checked: nothing was aligned."
    )
    cannot = AlignmentCheck("cannot be tested with this design: one block.")
    assert str(cannot) == (
        "Whether alignment worked cannot be tested with this design: one block."
    )
    for found in (missing, cannot):
        assert not found.available
        assert found.worked is None
        assert np.isnan(found.p_value)
        assert found.n_holding == 0


@pytest.fixture
def data(rng):
    y = [np.tile(np.arange(4), 8) for _ in range(3)]
    patterns = rng.normal(size=(4, 5))
    X = [
        patterns[own] @ rng.normal(size=(5, 20)) + rng.normal(size=(32, 20))
        for own in y
    ]
    return X, y


def test_wrong_arguments_of_a_check_are_named(data):
    X, y = data
    model = bw.GDM(2, shrinkage=0.3).fit(X, y)
    for wrong in (np.ones(3), "model"):
        with pytest.raises(TypeError, match=r"takes a fitted aligner.*; got (nda|str)"):
            alignment_check(wrong)
    with pytest.raises(InputError, match="alignment_check got 2 subjects; the model"):
        alignment_check(model, X[:2])
    with pytest.raises(ValueError, match="n_permutations of alignment_check must be"):
        alignment_check(model, n_permutations=0)
    for name in ("y", "runs"):
        message = (
            f"{name} of alignment_check has [32, 31, 32] entries for the [32, 32, 32] "
            "aligning samples of the subjects. Give one per sample."
        )
        wrong = [y[0], y[1][1:], y[2]]
        with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
            alignment_check(model, **{name: wrong})
    bare = bw.NoAlignment().fit([x[:, :20] for x in X])
    assert "nothing was aligned; every feature is a voxel" in str(alignment_check(bare))
    labels = np.concatenate(y)
    matrix = bw.matrix_graph((labels[:, None] == labels) * 1.0, [32] * 3)
    by_matrix = bw.GDM(1, graph=matrix, shrinkage=0.3, place=None).fit(X)
    assert "a matrix of weights, without groups" in str(alignment_check(by_matrix))


def test_an_answer_is_kept_for_the_usual_options_alone(data):
    X, y = data
    model = bw.GDM(2, shrinkage=0.3).fit(X, y)
    model.__dict__.pop("_check", None)
    few = alignment_check(model, n_permutations=19)
    assert few.n_permutations == 19
    assert "_check" not in vars(model)
    other = alignment_check(model, random_state=3)
    assert "_check" not in vars(model)
    usual = alignment_check(model)
    assert alignment_check(model) is usual is stored_check(model)
    assert usual.n_permutations == 199
    assert_allclose(usual.agreement_cv, other.agreement_cv, atol=1e-12)
    assert [f.shape for f in usual.features] == [(32, 2)] * 3
    model.__dict__.pop("_check")
    assert str(stored_check(model)) == str(usual)


def test_the_table_of_components_has_the_share_of_each_subjects_variance(data):
    X, y = data
    model = bw.GDM(2, shrinkage=0.3).fit(X, y)
    table = model.component_summary()
    answer = alignment_check(model)
    assert table.index.name == "component"
    assert_allclose(table["graph_fit"], model.eigenvalues_)
    assert_allclose(table["p"], answer.p)
    assert_allclose(table["agreement_cv"], answer.agreement_cv)
    assert table["informative"].tolist() == answer.holds.tolist()
    for i, x in enumerate(X):
        z = (x - x.mean(0)) / x.std(0)
        for k, f in enumerate(model.transform(X)[i].T):
            share = (f @ z @ z.T @ f) / (f @ f) / (z * z).sum()
            assert table[f"variance_{i}"][k] == pytest.approx(share, rel=1e-9)
