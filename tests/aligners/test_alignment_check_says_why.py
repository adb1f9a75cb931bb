"""What cannot be checked on held-out samples is answered with the reason."""

import pickle
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import brainweave as bw
from brainweave._core.exceptions import InputError
from brainweave.aligners.check.alignment_check import _groups_of_samples

PARCELS = np.repeat([1, 2], 15)
QUICK = {"n_permutations": 39}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = [np.array(list("abcd") * 6) for _ in range(3)]
    centroids = 3 * rng.normal(size=(4, 6))
    X = [
        centroids[np.arange(24) % 4] @ rng.normal(size=(6, 30))
        + rng.normal(size=(24, 30))
        for _ in y
    ]
    return X, y


def without_bases(model):
    return pickle.loads(pickle.dumps(model))


def test_runs_and_labels_of_another_length_are_refused(data):
    X, y = data
    gdm = bw.GDM(2).fit(X, y)
    pieces = bw.Parcelwise(bw.GDM(2), PARCELS).fit(X, y)
    short = [known[:-1] for known in y]
    for model, samples in ((gdm, None), (pieces, X)):
        with pytest.raises(
            InputError, match=r"runs .* \[5, 5, 5\] entries for the \[24,"
        ):
            bw.alignment_check(model, samples, runs=[[0] * 5] * 3)
        with pytest.raises(InputError, match=r"y .* has \[23, 23, 23\] entries"):
            bw.alignment_check(model, samples, short)
        with pytest.raises(InputError, match=r"runs .* has \[24, 24\] entries for"):
            bw.alignment_check(model, samples, runs=[[0] * 24] * 2)


def test_a_model_that_was_saved_without_an_answer(data, tmp_path):
    X, y = data
    graph = bw.label_graph(y).to_sparse()
    model = bw.GDM(2, graph=graph).fit(X)
    assert "matrix of weights" in bw.alignment_check(model).reason
    bw.save(model, tmp_path / "model.safetensors")
    check = bw.alignment_check(bw.load(tmp_path / "model.safetensors"))
    assert "matrix of weights" in check.reason


def test_a_pickled_model_needs_its_samples(data):
    X, y = data
    model = without_bases(bw.GDM(2).fit(X, y))
    assert "pass X" in bw.alignment_check(model).reason
    with pytest.raises(InputError, match="unpickled without its bases"):
        model.component_summary()
    other = bw.alignment_check(model, [x[:-2] for x in X], [k[:-2] for k in y])
    assert "not those the model aligned" in other.reason
    with pytest.raises(InputError, match="got 2 subjects; the model was fitted on 3"):
        bw.alignment_check(model, X[:2])
    assert bw.alignment_check(model, X, y, **QUICK).worked


def test_what_ties_samples_of_pieces_must_be_told(data):
    X, y = data
    model = bw.Parcelwise(bw.GDM(2), PARCELS).fit(X, y)
    assert "labels of the aligning samples are unknown" in (
        bw.alignment_check(model, X).reason
    )
    assert bw.alignment_check(model, X, y, **QUICK).worked
    own = bw.Parcelwise(bw.GDM(2, graph=partial(bw.label_graph, same=2.0)), PARCELS)
    assert bw.alignment_check(own.fit(X, y), X, y).worked  # each piece knows its graph


def test_labels_and_ids_of_pieces_count_as_labels(data):
    X, y = data
    both = [np.array(list(zip(k, range(24), strict=True)), object) for k in y]
    model = bw.Parcelwise(bw.GDM(2, graph="labels+time"), PARCELS).fit(X, both)
    assert bw.alignment_check(model, X, both, **QUICK).worked


def test_rows_that_do_not_correspond_cannot_be_compared(data):
    X, _ = data
    ids = [range(n) for n in (24, 22, 20)]
    cut = [x[: len(own)] for x, own in zip(X, ids, strict=True)]
    model = bw.Parcelwise(bw.GDM(2, graph="time"), PARCELS).fit(cut, ids)
    reason = bw.alignment_check(model, cut).reason
    assert "the subjects have [24, 22, 20] samples" in reason


def test_samples_without_a_label_are_compared_by_time(data):
    X, y = data
    mixed = [[None] * 12 + list(known[12:]) for known in y]
    model = bw.SemiSupervisedSRM(2, max_iter=5, tol=0, random_state=0).fit(X, mixed)
    assert bw.alignment_check(model, y=mixed, **QUICK).available


def test_a_random_start_is_checked_the_same_every_time(data):
    X, _ = data
    fitted = bw.DetSRM(2).fit(X)
    first, again = (bw.alignment_check(fitted, **QUICK) for _ in range(2))
    assert first.available
    assert_array_equal(first.p, again.p)


def test_samples_locked_in_time_are_groups_of_their_own():
    labels = ["a", "b", "a"]
    found = _groups_of_samples(bw.SemiSupervisedSRM(), [3, 3], [labels, labels])
    assert [codes.tolist() for codes in found] == [[0, 1, 2]] * 2  # all rows are locked
    mixed = [["a", None, "b", None], [None, None, "b"]]
    found = _groups_of_samples(bw.SemiSupervisedSRM(), [4, 3], mixed)
    assert [codes.tolist() for codes in found] == [[0, 2, 1, 3], [2, 3, 1]]
