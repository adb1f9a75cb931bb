"""Places of arrays: means over labels or matrices, and what is refused."""

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

from brainweave import InputError
from brainweave.basis.places import find_places


def test_samples_in_places_are_means_over_their_voxels(rng):
    X = [rng.normal(size=(5, 6)), rng.normal(size=(4, 5))]
    labels = [["a", "b", "a", None, "b", "b"], ["b", "c", 0, np.nan, "c"]]
    places = find_places(labels, X, owner="GDM")
    assert places.names == ("a", "b", "c")
    assert places.n_places == 3
    first = X[0] @ places.matrices[0]
    assert_allclose(first[:, 0], X[0][:, [0, 2]].mean(axis=1))
    assert_allclose(first[:, 1], X[0][:, [1, 4, 5]].mean(axis=1))
    assert_allclose(first[:, 2], 0)  # a place that it lacks
    second = X[1] @ places.matrices[1]
    assert_allclose(second[:, 2], X[1][:, [1, 4]].mean(axis=1))
    assert_allclose(second[:, 0], 0)


def test_a_new_subject_has_the_same_places_whatever_labels_it_lacks(rng):
    X = [rng.normal(size=(5, 4))] * 2
    labels = [3, 1, 3, 2]
    places = find_places(labels, X, owner="GDM")
    new = places.of_new(X[0], labels)
    assert_allclose(new.toarray(), places.matrices[0].toarray())
    with pytest.raises(InputError, match="places per subject, and none of a new one"):
        places.of_new(X[0], [labels, labels])
    with pytest.raises(InputError, match="a label for each of the 3 voxels"):
        places.of_new(X[0][:, :3], labels)


def test_matrices_are_taken_as_they_are(rng):
    B = scipy.sparse.random(4, 3, density=0.7, random_state=0)
    places = find_places(B, [rng.normal(size=(5, 4))] * 2, owner="GDM")
    assert places.n_places == 3
    for own in (*places.matrices, places.of_new(rng.normal(size=(2, 4)), B)):
        assert_allclose(own.toarray(), B.toarray())


@pytest.mark.parametrize(("columns", "found"), [(2048, True), (2049, False)])
def test_equal_columns_are_places_up_to_a_number(columns, found):
    places = find_places("auto", [np.zeros((2, columns))] * 2, owner="GDM")
    assert isinstance(places, str) != found
    if found:
        assert places.n_places == columns
        assert places.of_new(np.zeros((3, columns))) is None
