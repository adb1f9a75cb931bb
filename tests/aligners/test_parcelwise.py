"""Parcelwise: local fits side by side, and what cannot be aligned is reported."""

import pickle
import warnings

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from brainweave import PaperGDM
from brainweave._core import workers
from brainweave._core.exceptions import InputError, SkippedWarning
from brainweave.aligners.gdm.gdm import GDM
from brainweave.aligners.hyperalignment import Hyperalignment, KernelHyperalignment
from brainweave.aligners.piecewise.parcelwise import Parcelwise
from brainweave.aligners.piecewise.searchlight import Searchlight
from brainweave.aligners.srm.robust import RobustSRM
from brainweave.aligners.srm.srm import DetSRM
from brainweave.basis.basis import SubjectBasis
from brainweave.study.study import Subject

PARCELS = np.repeat([2, 0, 1, 5], [20, 6, 30, 14])


def make_study(seed=0, *, n_subjects=3, n=25, v=70, dtype=float):
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n, 8))
    return [
        (shared @ rng.normal(size=(8, v)) + rng.normal(size=(n, v)) + 3).astype(dtype)
        for _ in range(n_subjects)
    ]


def model_of(parcels=PARCELS, aligner=None, **params):
    return Parcelwise(aligner or DetSRM(3, random_state=0), parcels, **params)


class Volume:
    """A space as the study layer has it: a mask and where it lies."""

    def __init__(self, mask, affine):
        self.mask, self.affine = mask, affine

    def to_image(self, values):
        image = np.zeros(self.mask.shape)
        image[self.mask] = values
        return image


class Person:
    """A subject that knows its labels and space."""

    def __init__(self, samples, space=None, labels=None):
        self.samples, self.space, self.labels = samples, space, labels
        self.n_samples, self.n_voxels = np.shape(samples)

    def data(self):
        return self.samples


class Atlas:
    """An image as nibabel has it."""

    def __init__(self, dataobj, affine):
        self.dataobj, self.affine = dataobj, affine


def test_features_are_those_of_each_parcel_fitted_alone():
    X = make_study()
    model = model_of().fit(X)
    parts = [
        DetSRM(3, random_state=0).fit_transform([x[:, p == PARCELS] for x in X])
        for p in (1, 2, 5)
    ]
    for i, features in enumerate(model.transform(X)):
        assert_allclose(features, np.hstack([p[i] for p in parts]), atol=1e-9)
    assert model.parcels_ == [1, 2, 5]
    assert_array_equal(model.feature_parcels_, np.repeat([1, 2, 5], 3))


def test_weights_are_block_diagonal_and_give_the_features():
    X = make_study()
    model = model_of().fit(X)
    m = model.maps_[1]
    z = (X[1] - X[1].mean(0)) / X[1].std(0)
    assert_allclose(z @ m.weights, model.transform(X)[1], atol=1e-9)
    assert_array_equal(m.weights[PARCELS == 0].toarray(), 0)
    assert m.weights.nnz == m.patterns.nnz == 64 * 3
    assert_allclose((m.weights.T @ m.weights).toarray(), np.eye(9), atol=1e-9)


def test_way_back_gives_all_voxels_with_the_mean_outside_parcels():
    X = make_study()
    model = model_of().fit(X)
    back = model.inverse_transform(model.transform(X))[0]
    assert back.shape == X[0].shape
    inside = PARCELS > 0
    assert np.corrcoef(back[:, inside].ravel(), X[0][:, inside].ravel())[0, 1] > 0.7
    outside = np.broadcast_to(X[0].mean(0), X[0].shape)[:, ~inside]
    assert_allclose(back[:, ~inside], outside, rtol=1e-10)
    predicted = model.predict_subject(2, X[:2])
    assert (
        np.corrcoef(predicted[:, inside].ravel(), X[2][:, inside].ravel())[0, 1] > 0.5
    )


def test_labels_may_differ_from_subject_to_subject_and_be_words():
    X = make_study()
    X[1] = X[1][:, 10:]
    words = np.array(["", "V1", "V2"])[np.repeat([1, 0, 2], [20, 6, 44])]
    model = model_of([words, words[10:], words]).fit(X)
    assert model.parcels_ == ["V1", "V2"]
    assert [m.n_voxels for m in model.maps_] == [70, 60, 70]
    assert model.transform(X)[1].shape == (25, 6)
    with pytest.raises(InputError, match="pass those of the new one"):
        model.fit_new_subject(X[1])
    new = model.fit_new_subject(X[1], parcels=words[10:])
    assert_allclose(new.transform(X[1]), model.transform(X)[1], atol=0.2)


def test_background_is_zero_none_nan_or_empty():
    X = make_study()
    numbers = PARCELS.astype(float)
    numbers[numbers == 0] = np.nan
    objects = np.array([None if p == 0 else int(p) for p in PARCELS], dtype=object)
    expected = model_of().fit(X).transform(X)[0]
    for parcels in (numbers, objects, PARCELS.tolist()):
        assert_allclose(model_of(parcels).fit(X).transform(X)[0], expected)


@pytest.mark.parametrize("shift", [0, 1])
def test_atlas_image_is_looked_up_at_each_voxel(shift):
    mask = np.ones((5, 7, 2), dtype=bool)
    space = Volume(mask, np.diag([2.0, 2, 2, 1]))
    fine = np.zeros((12, 16, 6), dtype=np.float32)
    fine[:5], fine[5:, :, :] = 3, 4  # at half the voxel size
    affine = np.eye(4)
    affine[0, 3] = -shift
    atlas = Atlas(fine, affine)
    people = [Person(x, space) for x in make_study()]
    model = model_of(atlas).fit(people)
    x_of = np.argwhere(mask)[:, 0] * 2 + shift
    assert model.parcels_ == [3, 4]
    found = model.maps_[0].parts[0][0]
    assert_array_equal(found, np.flatnonzero(x_of < 5))
    image = model.maps_[0].to_image(0)
    assert image.shape == mask.shape
    assert_array_equal(np.unique(np.argwhere(image)[:, 0] * 2 + shift < 5), [True])
    with pytest.raises(IndexError):
        model.maps_[0].to_image(6)


def test_atlas_needs_subjects_that_know_their_space():
    X = make_study()
    atlas = Atlas(np.ones((2, 2, 2)), np.eye(4))
    with pytest.raises(InputError, match=r"X\[0\] does not know where its voxels are"):
        model_of(atlas).fit(X)
    with pytest.raises(InputError, match=r"X\[0\] does not know where its voxels are"):
        model_of("atlas.nii.gz").fit(X)
    space = Volume(np.ones((70, 1, 1), bool), np.eye(4))
    maps = Atlas(np.ones((70, 1, 1, 4)), np.eye(4))
    with pytest.raises(InputError, match="Probabilistic atlases"):
        model_of(maps).fit([Person(x, space) for x in X])


def test_parcels_that_cannot_be_aligned_are_skipped_and_reported():
    X = make_study()
    parcels = PARCELS.copy()
    parcels[:2] = 7  # too few voxels for 3 components
    parcels[2] = 8  # one voxel
    X[1][:, parcels == 5] = 4.0  # constant
    with pytest.warns(SkippedWarning, match="3 of 5 parcels were skipped") as caught:
        model = model_of(parcels).fit(X)
    assert len(caught) == 1
    assert model.parcels_ == [1, 2]
    assert "n_components=3 is more than the 2" in model.skipped_[7]
    assert model.skipped_[8] == "X[0] has 1 voxel(s) in it."
    assert "all 14 voxels are constant" in model.skipped_[5]
    assert model.transform(X)[0].shape == (25, 6)


def test_nothing_left_to_align_is_an_error_with_the_reason():
    X = make_study()
    with pytest.raises(InputError, match=r"None of the 3 parcels .* n_components=60"):
        model_of(aligner=DetSRM(60)).fit(X)
    with pytest.raises(InputError, match=r"None of the 3 parcels .*match_samples"):
        model_of().fit([X[0], X[1][:20]])


def test_warnings_of_many_parcels_become_one():
    X = make_study()
    aligner = DetSRM(3, random_state=0, max_iter=1)
    with pytest.warns(
        ConvergenceWarning, match="In 3 of 3 parcels. Parcel 1:"
    ) as caught:
        model_of(aligner=aligner).fit(X)
    assert len(caught) == 1


def test_new_subject_joins_every_parcel():
    X = make_study(n_subjects=4)
    model = model_of().fit(X[:3])
    before = model.transform(X[:3])
    new = model.fit_new_subject(X[3])
    mapped, mean = new.transform(X[3]), np.mean(before, axis=0)
    agreement = [np.corrcoef(mapped[:, k], mean[:, k])[0, 1] for k in range(9)]
    assert np.median(agreement) > 0.8
    for a, b in zip(model.transform(X[:3]), before, strict=True):
        assert_array_equal(a, b)


def test_new_subject_with_a_dead_parcel_gets_zeros_there_and_a_warning():
    X = make_study(n_subjects=4)
    model = model_of().fit(X[:3])
    X[3][:, PARCELS == 2] = 1.0
    with pytest.warns(SkippedWarning, match="1 of 3 parcels were skipped"):
        new = model.fit_new_subject(X[3])
    features = new.transform(X[3])
    assert_array_equal(features[:, 3:6], 0)
    assert features[:, :3].std() > 0
    assert np.isfinite(new.inverse_transform(features)).all()


def test_labels_reach_the_aligner_and_unaligned_studies_work():
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(3, 8))
    y = [rng.permutation(np.arange(n) % 3) for n in (24, 30)]
    X = [centroids[c] @ rng.normal(size=(8, 70)) for c in y]
    X = [x + 0.3 * rng.normal(size=x.shape) for x in X]
    model = model_of(aligner=PaperGDM(2, energy=0.6)).fit(X, y)
    a, b = model.transform(X)
    means = [[f[c == k].mean(0) for k in range(3)] for f, c in ((a, y[0]), (b, y[1]))]
    assert np.corrcoef(np.ravel(means[0]), np.ravel(means[1]))[0, 1] > 0.9
    people = [Person(x, labels=c) for x, c in zip(X, y, strict=True)]
    assert_allclose(clone(model).fit(people).transform(X)[0], a)
    new = model.fit_new_subject(people[0])
    assert np.corrcoef(new.transform(X[0]).ravel(), a.ravel())[0, 1] > 0.9


def test_other_kernels_and_robust_maps_work_inside():
    X = make_study()
    kernel = KernelHyperalignment(3, kernel="gaussian", kernel_params={"hp": 100.0})
    model = model_of(aligner=kernel).fit(X)
    assert model.transform(X)[0].shape == (25, 9)
    assert model.maps_[0].kernel == "gaussian"
    robust = model_of(aligner=RobustSRM(3, random_state=0)).fit(X)
    assert robust.fit_new_subject(X[0]).n_components == 9


def test_nested_parameters_clone_and_pickle():
    model = model_of(aligner=Hyperalignment(3), progress=lambda *step: None)
    model.set_params(aligner__n_components=2)
    assert clone(model).aligner.n_components == 2
    X = make_study(dtype=np.float32)
    model.fit(X)
    copy = pickle.loads(pickle.dumps(model))
    assert copy.progress is False
    for a, b in zip(copy.transform(X), model.transform(X), strict=True):
        assert_array_equal(a, b)
        assert a.dtype == np.float32
    assert_allclose(
        copy.fit_new_subject(X[0]).transform(X[0]),
        model.fit_new_subject(X[0]).transform(X[0]),
    )
    assert model.aligner.n_jobs is None  # the parameter is not touched


def test_progress_is_told_and_nothing_is_printed(capsys):
    calls = []
    model_of(progress=lambda *step: calls.append(step)).fit(make_study())
    assert calls == [(i, 3, "Aligning") for i in (1, 2, 3)]
    assert capsys.readouterr().out == ""
    model_of(progress=True).fit(make_study())
    with pytest.raises(TypeError, match="progress must be True, False or a function"):
        model_of(progress="bar").fit(make_study())


def test_parallel_config_is_honoured_with_the_same_bits():
    X = make_study()
    alone = model_of().fit(X).transform(X)
    with joblib.parallel_config("threading", n_jobs=2):
        together = model_of().fit(X).transform(X)
    for a, b in zip(alone, together, strict=True):
        assert_array_equal(a, b)


def test_many_pieces_are_fitted_in_processes_with_the_same_bits(monkeypatch):
    data, used = make_study(), []
    parcels = np.repeat(np.arange(1, 9), [1, 9, 10, 10, 10, 10, 10, 10])
    aligner = DetSRM(3, max_iter=2, random_state=0)  # cannot converge

    def parallel(**how):
        used.append(how.get("backend"))
        return joblib.Parallel(**how)

    def fitted():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = model_of(parcels, aligner, n_jobs=2).fit(data)
        return model.transform(data), [(w.category, str(w.message)) for w in caught]

    monkeypatch.setattr(workers, "Parallel", parallel)
    here, told = fitted()
    monkeypatch.setattr(workers, "WORTH_PROCESSES", 0.0)
    there, told_there = fitted()
    with joblib.parallel_config(backend="threading"):
        fitted()
    assert used == [None, "loky", None]  # what is configured wins
    assert [kind for kind, _ in told] == [SkippedWarning, ConvergenceWarning]
    assert told_there == told
    for a, b in zip(here, there, strict=True):
        assert_array_equal(a, b)


def test_nan_is_refused_where_it_matters():
    X = make_study()
    X[1][4, 22] = np.nan  # background
    model = model_of().fit(X)
    assert np.isfinite(model.transform(X)[1]).all()
    X[1][4, 30] = np.nan
    with pytest.raises(InputError, match=r"X\[1\] has NaN .* sample 4, voxel 30"):
        model_of().fit(X)
    with pytest.raises(InputError, match=r"X\[1\] \(subject 1\) has NaN"):
        model.transform(X)


@pytest.mark.parametrize(
    ("parcels", "error", "text"),
    [
        (None, TypeError, "must be a label per voxel, .* got None"),
        (
            np.ones(69),
            InputError,
            r"each of the 70 voxels of X\[0\]; got shape \(69,\)",
        ),
        ([PARCELS] * 2, InputError, "2 entries for 3 subjects"),
        (np.zeros(70), InputError, "All voxels are background"),
    ],
)
def test_wrong_parcels_are_named(parcels, error, text):
    with pytest.raises(error, match=text):
        model_of(parcels).fit(make_study())


def test_wrong_input_is_named():
    X = make_study()
    with pytest.raises(TypeError, match=r"must be an aligner such as SRM"):
        Parcelwise("srm", PARCELS).fit(X)
    with pytest.raises(
        TypeError, match=r"X\[0\] must be a 2-D array .* got SubjectBasis"
    ):
        model_of().fit([SubjectBasis(x) for x in X])
    model = model_of().fit(X)
    with pytest.raises(InputError, match="samples x 70 voxels"):
        model.transform([X[0][:, :5]], subjects=[0])
    with pytest.raises(InputError, match="samples x 9"):
        model.inverse_transform([np.zeros((2, 4))], subjects=[0])


def test_a_new_subject_is_joined_by_what_the_aligner_joins_by():
    """By its stimuli where the graph is one of time, not by its categories."""
    X, labels = make_study(n_subjects=4), list("abcde") * 5
    people = [
        Subject(str(i), x, labels=labels, stimuli=range(25)) for i, x in enumerate(X)
    ]
    model = model_of(aligner=GDM(2, graph="time")).fit(people[:3])
    by_itself = model.fit_new_subject(people[3])
    told = model.fit_new_subject(X[3], list(range(25)))
    assert_array_equal(by_itself.transform(X[3]), told.transform(X[3]))


def test_labels_that_are_given_win_over_those_of_the_subject():
    X, y = make_study(), np.arange(25) % 5
    model = model_of(aligner=GDM(2)).fit(X, [y] * 3)
    wrong = Subject("new", X[0], labels=y[::-1])
    want = model.fit_new_subject(X[0], y).transform(X[0])
    assert_allclose(model.fit_new_subject(wrong, y).transform(X[0]), want)
    right = Subject("new", X[0], labels=y)
    assert_allclose(model.fit_new_subject(right).transform(X[0]), want)


def test_values_of_pieces_are_put_on_the_brain():
    space = Volume(np.ones((7, 10, 1), bool), np.eye(4))
    people = [Person(x, space) for x in make_study()]
    model = model_of(PARCELS).fit(people)
    values = {name: 10.0 * k for k, name in enumerate(model.parcels_)}
    image = model.piece_image(values)
    expected = [values.get(label, 0.0) for label in PARCELS.tolist()]
    assert_allclose(image.ravel(), expected)
    with pytest.raises(InputError, match="has no parcel 'V1'"):
        model.piece_image({"V1": 1.0})
    with pytest.raises(InputError, match="brain space of subject 0 is not known"):
        model_of(PARCELS).fit(make_study()).piece_image(values)


def test_values_of_neighborhoods_are_averaged_over_voxels():
    space = Volume(np.ones((7, 10, 1), bool), np.eye(4))
    people = [Person(x, space) for x in make_study()]
    lights = {"radius": 20, "coordinates": np.arange(70)[:, None], "centers": [19, 45]}
    model = Searchlight(DetSRM(3, random_state=0), **lights).fit(people)
    image = model.piece_image({0: 1.0, 1: 3.0}).ravel()
    assert_allclose(image, [1] * 25 + [2] * 15 + [3] * 26 + [0] * 4)
