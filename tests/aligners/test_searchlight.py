"""Searchlight: local maps averaged into one map of the whole brain."""

import pickle
import threading
import time

import joblib
import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from brainweave import PaperGDM
from brainweave._core.exceptions import InputError, SkippedWarning
from brainweave.aligners.hyperalignment import Hyperalignment, KernelHyperalignment
from brainweave.aligners.piecewise.searchlight import Searchlight
from brainweave.aligners.srm.srm import DetSRM
from tests.aligners.test_parcelwise import Person, Volume, make_study

LINE = np.arange(30.0)[:, None]


def line_study(seed=0, n_subjects=3, n=25, v=30, dtype=float):
    return make_study(seed, n_subjects=n_subjects, n=n, v=v, dtype=dtype)


def model_of(aligner=None, **params):
    settings = {"radius": 3, "coordinates": LINE} | params
    return Searchlight(aligner or DetSRM(3, random_state=0), **settings)


def standardized(x):
    return (x - x.mean(axis=0)) / x.std(axis=0)


def plain_aggregation(X, lists, k=3):
    """Average the local maps in dense matrices, as the formula reads."""
    v = X[0].shape[1]
    sums, counts = [np.zeros((v, v)) for _ in X], np.zeros(v)
    for voxels in lists:
        local = DetSRM(k, random_state=0).fit([x[:, voxels] for x in X])
        for T, m in zip(sums, local.maps_, strict=True):
            T[np.ix_(voxels, voxels)] += m.weights @ local.maps_[0].patterns
        counts[voxels] += 1
    return [T / counts for T in sums]


def test_map_is_the_average_of_the_local_maps():
    X = line_study()
    model = model_of().fit(X)
    lists = [np.flatnonzero(np.abs(LINE - at) <= 3) for at in LINE]
    dense = plain_aggregation(X, lists)
    for T, m, x, f in zip(dense, model.maps_, X, model.transform(X), strict=True):
        assert_allclose(m.weights.toarray(), T, atol=1e-10)
        assert_allclose(f, standardized(x) @ T, atol=1e-9)
    assert_array_equal(model.coverage_, [len(c) for c in lists])
    assert scipy.sparse.issparse(model.maps_[0].weights)
    assert model.maps_[0].weights.nnz < 30 * 13  # neighbours of neighbours only


def test_one_neighborhood_of_all_voxels_is_the_aligner_itself():
    X = line_study()
    model = model_of(Hyperalignment(), radius=100, centers=[0]).fit(X)
    plain = Hyperalignment().fit(X)
    to_reference = plain.maps_[0].patterns
    for f, s in zip(model.transform(X), plain.transform(X), strict=True):
        assert_allclose(f, s @ to_reference, atol=1e-9)


def test_values_do_not_grow_with_the_number_of_searchlights():
    X = line_study()
    once, often = (model_of(centers=[*range(30)] * n).fit(X) for n in (1, 3))
    for a, b in zip(once.transform(X), often.transform(X), strict=True):
        assert_allclose(a, b, atol=1e-10)
    shared = once.transform(X)[:1]
    back, again = (m.inverse_transform(shared, [0])[0] for m in (once, often))
    assert_allclose(back, again, atol=1e-10)


def test_planted_local_rotations_are_undone():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(60, 30))
    X = [first]
    for _ in range(2):
        turned = first.copy()
        for start in range(0, 30, 5):
            Q = np.linalg.qr(rng.normal(size=(5, 5)))[0]
            turned[:, start : start + 5] = first[:, start : start + 5] @ Q
        X.append(turned + 0.01 * rng.normal(size=first.shape))
    blocks = {"coordinates": LINE // 5, "radius": 0.5, "centers": range(0, 30, 5)}
    model = model_of(Hyperalignment(standardize=False), **blocks).fit(X)
    shared = model.transform(X)
    assert_allclose(shared[1], shared[0], atol=0.1)
    assert_allclose(shared[0], first - first.mean(0), atol=1e-8)
    assert_allclose(model.inverse_transform(shared)[1], X[1], atol=0.1)
    assert_allclose(model.predict_subject(0, X[1:]), first, atol=0.1)


def test_volumes_know_their_coordinates():
    mask = np.zeros((5, 4, 4), dtype=bool)
    mask[1:4, 1:, :3] = True
    space = Volume(mask, np.diag([3.0, 3, 3, 1]))
    X = line_study(v=27)
    people = [Person(x, space) for x in X]
    model = model_of(coordinates=None, radius=3).fit(people)
    assert model.coverage_.max() == 7  # a voxel and the six that touch its faces
    assert model.maps_[0].to_image(13).shape == mask.shape
    assert np.count_nonzero(model.maps_[0].to_image(13, what="weights")) <= 27
    with pytest.raises(InputError, match=r"X\[0\] does not know where its voxels are"):
        model_of(coordinates=None).fit(X)
    new = model.fit_new_subject(people[1])
    assert_allclose(new.transform(X[1]), model.transform(X)[1], atol=0.5)


def test_subjects_may_differ_in_voxels():
    X = line_study()
    X[1], X[2] = X[1][:, 3:], X[2][:, ::2]
    places = [LINE, LINE[3:], LINE[::2]]
    model = model_of(Hyperalignment(2), radius=4, coordinates=places).fit(X)
    assert [m.weights.shape for m in model.maps_] == [(30, 30), (27, 30), (15, 30)]
    assert {f.shape for f in model.transform(X)} == {(25, 30)}
    assert model.inverse_transform([np.zeros((2, 30))], subjects=[2])[0].shape == (
        2,
        15,
    )
    new = model.fit_new_subject(X[2], coordinates=LINE[::2])
    reached = np.corrcoef(new.transform(X[2]).ravel(), model.transform(X)[2].ravel())
    assert reached[0, 1] > 0.9
    with pytest.raises(InputError, match="has 15 voxels, the reference 30"):
        model.fit_new_subject(X[2])


def test_neighborhoods_that_cannot_be_aligned_are_skipped_and_reported():
    X = line_study()
    X[1][:, 14:] = 1.0  # zero variance
    with pytest.warns(SkippedWarning, match="neighborhoods were skipped") as caught:
        model = model_of().fit(X)
    assert len(caught) == 1
    assert "constant" in model.skipped_[20]
    assert 5 not in model.skipped_
    assert model.n_searchlights_ == 30 - len(model.skipped_)
    assert_array_equal(model.coverage_[20:], 0)
    for f in model.transform(X):
        assert np.isfinite(f).all()
        assert_array_equal(f[:, 20:], 0)


def test_lonely_voxels_are_too_few():
    X = line_study()
    places = LINE.copy()
    places[25:] += 100 * np.arange(1, 6)[:, None]
    with pytest.warns(SkippedWarning, match=r"1 voxel\(s\) in it"):
        model = model_of(coordinates=places).fit(X)
    assert set(model.skipped_) == set(range(25, 30))


def test_new_subject_joins_the_common_space():
    X = line_study(n_subjects=4)
    model = model_of().fit(X[:3])
    before = model.transform(X[:3])
    new = model.fit_new_subject(X[3])
    mapped, mean = new.transform(X[3]), np.mean(before, axis=0)
    correlations = [np.corrcoef(mapped[:, u], mean[:, u])[0, 1] for u in range(30)]
    raw = [np.corrcoef(X[3][:, u], mean[:, u])[0, 1] for u in range(30)]
    assert np.median(correlations) > 0.8 > np.median(raw) + 0.3
    for a, b in zip(model.transform(X[:3]), before, strict=True):
        assert_array_equal(a, b)
    X[3][:, 12:] = 0
    with pytest.warns(SkippedWarning, match="neighborhoods were skipped"):
        partial = model.fit_new_subject(X[3])
    assert_array_equal(partial.transform(X[3])[:, 20:], 0)


def test_memory_can_be_saved_at_the_cost_of_new_subjects():
    X = line_study()
    model = model_of(keep_local=False).fit(X)
    assert model.transform(X)[0].shape == (25, 30)
    with pytest.raises(InputError, match="keep_local=True"):
        model.fit_new_subject(X[0])


def test_local_alignment_raises_agreement_between_subjects():
    rng = np.random.default_rng(1)
    smooth = rng.normal(size=(60, 30))
    X = []
    for _ in range(4):
        local = np.kron(np.eye(10), np.ones((3, 3))) * rng.normal(size=(30, 30))
        X.append(smooth @ local + 0.3 * rng.normal(size=smooth.shape))
    aligned = model_of(Hyperalignment(), radius=2).fit(X).transform(X)

    def agreement(data):
        return np.mean(
            [np.corrcoef(data[0][:, u], data[1][:, u])[0, 1] for u in range(30)]
        )

    assert agreement(aligned) > agreement(X) + 0.4


def test_labels_reach_the_aligner():
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(3, 30))
    y = [rng.permutation(np.arange(n) % 3) for n in (24, 30)]
    X = [centroids[c] + 0.3 * rng.normal(size=(len(c), 30)) for c in y]
    model = model_of(PaperGDM(2, energy=0.9), centers=np.arange(0, 30, 3)).fit(X, y)
    a, b = model.transform(X)
    means = [[f[c == k].mean(0) for k in range(3)] for f, c in ((a, y[0]), (b, y[1]))]
    assert np.corrcoef(np.ravel(means[0]), np.ravel(means[1]))[0, 1] > 0.95


def test_float32_clone_pickle_and_n_jobs():
    X = line_study(dtype=np.float32)
    model = model_of(centers=np.arange(0, 30, 5))
    model.set_params(aligner__n_components=2)
    alone = clone(model).fit(X)
    assert alone.aligner.n_components == 2
    assert alone.maps_[0].weights.dtype == np.float32
    features = alone.transform(X)
    assert {f.dtype for f in features} == {np.dtype(np.float32)}
    with joblib.parallel_config("threading", n_jobs=2):
        together = clone(model).fit(X).transform(X)
    copy = pickle.loads(pickle.dumps(alone))
    for a, b, c in zip(features, together, copy.transform(X), strict=True):
        assert_array_equal(a, b)
        assert_array_equal(a, c)
    assert_allclose(
        copy.fit_new_subject(X[0]).transform(X[0]),
        alone.fit_new_subject(X[0]).transform(X[0]),
    )


def test_kernels_without_weights_are_refused_with_the_reason():
    aligner = KernelHyperalignment(3, kernel="gaussian", kernel_params={"hp": 50.0})
    with pytest.raises(InputError, match="linear kernel"):
        model_of(aligner).fit(line_study())


@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        ({"radius": None}, TypeError, "radius of Searchlight must be a number"),
        ({"radius": -1}, InputError, "radius of Searchlight must be > 0"),
        ({"coordinates": LINE[:9]}, InputError, r"each of the 30 voxels of X\[0\]"),
        ({"coordinates": LINE * np.nan}, ValueError, "must be finite"),
        ({"coordinates": [LINE, LINE]}, InputError, "2 entries for 3 subjects"),
        ({"centers": [40]}, InputError, "must be voxel numbers from 0 to 29"),
        ({"centers": [0.5]}, InputError, "must be voxel numbers"),
        ({"centers": []}, InputError, "no neighborhoods"),
    ],
)
def test_wrong_parameters_are_named(params, error, text):
    with pytest.raises(error, match=text):
        model_of(**params).fit(line_study())


def test_nan_is_refused():
    X = line_study()
    model = model_of().fit(X)
    X[2][1, 3] = np.nan
    with pytest.raises(InputError, match=r"X\[2\] has NaN .* sample 1, voxel 3"):
        model_of().fit(X)
    with pytest.raises(InputError, match=r"X\[2\] \(subject 2\) has NaN"):
        model.transform(X)


def test_all_cores_are_used_by_default_with_the_same_warnings_and_bits(monkeypatch):
    """n_jobs=None means what it means for every other aligner."""
    threads = set()

    class Noting(DetSRM):
        def fit(self, X, y=None):
            threads.add(threading.get_ident())
            time.sleep(0.01)
            return super().fit(X, y)

    monkeypatch.setattr("brainweave.aligners.piecewise.piecewise.cpu_count", lambda: 2)
    X = line_study()
    found = []
    for n_jobs in (1, None):
        aligner = Noting(3, max_iter=1, tol=1e-12, random_state=0)
        model = model_of(aligner, centers=np.arange(0, 30, 3), n_jobs=n_jobs)
        threads.clear()
        with pytest.warns(ConvergenceWarning, match="In 10 of 10 neighb") as caught:
            features = model.fit(X).transform(X)
        assert len(caught) == 1
        found.append((len(threads), features))
    (one, alone), (several, together) = found
    assert one == 1
    assert several > 1
    for a, b in zip(alone, together, strict=True):
        assert_array_equal(a, b)


def test_maps_hold_no_zeros_of_voxels_without_a_map(rng):
    X = [rng.normal(size=(12, 9)) for _ in range(2)]
    places = LINE[:9].copy()
    places[8] = 99
    lights = {"radius": 2, "coordinates": places, "centers": [2, 6, 8]}
    with pytest.warns(SkippedWarning):
        model = model_of(DetSRM(1, random_state=0), **lights).fit(X)
    for own in model.maps_:
        assert own.weights.nnz == np.count_nonzero(own.weights.toarray()) > 0
