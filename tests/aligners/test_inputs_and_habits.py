"""What people have: data frames, dicts, stacks, one y for all."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave import (
    GDM,
    SRM,
    DetSRM,
    NoAlignment,
    Parcelwise,
    Subject,
    between_subject_classification,
    match_samples,
)
from brainweave._core.exceptions import BrainweaveError, InputError, LayoutWarning
from brainweave._core.validation import check_indices
from evaluation_studies import labelled_study, three_subjects

Y = np.array(list("abc") * 8)


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    centroids = {c: rng.normal(size=4) for c in "abc"}
    shared = np.array([centroids[c] for c in Y])
    return [
        shared @ rng.normal(size=(4, 20)) + 0.3 * rng.normal(size=(24, 20))
        for _ in range(4)
    ]


def test_what_has_one_meaning_gives_the_same_fit(X):
    want = GDM(2).fit_transform(X, [Y] * 4)
    ways = {
        "one y": (X, Y),
        "one y as a list": (X, Y.tolist()),
        "frames": ([pd.DataFrame(x) for x in X], [pd.Series(Y)] * 4),
        "rows": ([x.tolist() for x in X], [Y] * 4),
        "stack": (np.stack(X), np.stack([Y] * 4)),
        "dicts": (
            {f"0{i}": x for i, x in enumerate(X)},
            {f"0{i}": Y for i in (3, 1, 0, 2)},
        ),
    }
    for name, (samples, known) in ways.items():
        got = GDM(2).fit_transform(samples, known)
        for a, b in zip(got, want, strict=True):
            assert_allclose(a, b, rtol=0, atol=1e-10, err_msg=name)


def test_a_dict_names_its_subjects(X):
    people = {f"0{i}": x for i, x in enumerate(X)}
    model = GDM(2).fit(people, Y)
    assert model.ids_ == ["00", "01", "02", "03"]
    (alone,) = model.transform({"02": X[2]})
    assert_allclose(alone, model.transform(people)[2])
    result = between_subject_classification(GDM(2), people, Y)
    assert result.folds[0]["test_subjects"] == ["00"]
    assert len(match_samples(people, Y).X) == 4


@pytest.mark.parametrize(
    ("samples", "known", "said"),
    [
        (["a.npy", "b.npy"], Y, "X[0] is the path 'a.npy', not samples"),
        ("a.npy", Y, "is the path 'a.npy'"),
        ([np.ones(24), np.ones(24)], Y, "X[0] must be 2-D (samples x voxels)"),
        ([np.ones((24, 2, 2, 2))] * 2, Y, "images are masked by load_nifti"),
        (np.ones((24, 5)), Y, "got one array of shape (24, 5)"),
        (pd.DataFrame(np.ones((24, 5))), Y, "got one array of shape (24, 5)"),
        ([[[1, 2], [3]], [[1, 2], [3, 4]]], None, "X[0] must be a 2-D array"),
        ({"a": "x.nii.gz", "b": "y.nii.gz"}, Y, "X['a'] is the path"),
        ({"a": np.ones((24, 3)), "b": np.ones(3)}, Y, "X['b'] must be 2-D"),
        (
            [np.eye(24), np.eye(23)],
            Y,
            "24 labels for 23 samples. y is one list for all",
        ),
        ([np.eye(24)] * 2, {"a": Y, "b": Y}, "X holds arrays, which have no ids"),
        (
            {"a": np.eye(24), "b": np.eye(24)},
            {"a": Y},
            "is a dict of 'a', but X holds 'a', 'b'",
        ),
        ([np.eye(24)] * 2, "ababab", "must hold labels, got the text"),
        ([np.eye(24)] * 2, bw.simulate_study(), "must hold labels, got a Sim"),
        (
            [pd.DataFrame({"v": np.arange(24.0), "who": ["x"] * 24})] * 2,
            Y,
            "must hold real numbers, got object",
        ),
    ],
)
def test_the_rest_is_refused_in_words_about_that_input(samples, known, said):
    with pytest.raises((BrainweaveError, TypeError)) as error:
        GDM(2).fit(samples, known)
    assert said in str(error.value)


def test_images_and_quoted_numbers_are_refused(X):
    import nibabel as nib

    image = nib.Nifti1Image(np.ones((2, 2, 2, 24), np.float32), np.eye(4))
    with pytest.raises(TypeError, match="is a Nifti1Image"):
        GDM(2).fit([image, image], Y)
    with pytest.raises(BrainweaveError, match="must be a number or 'auto'; got '6'"):
        GDM(n_components="6").fit(X, Y)


@pytest.mark.parametrize("jobs", ["x", 1.5, 0, True, [1, 2], np.array([1, 2])], ids=str)
def test_a_number_of_jobs_that_is_none_is_refused(X, jobs):
    parcels = [np.arange(20) % 2 + 1] * 4
    for aligner in (
        GDM(2, n_jobs=jobs),
        DetSRM(2, n_jobs=jobs, random_state=0),
        Parcelwise(GDM(2), parcels, n_jobs=jobs),
    ):
        with pytest.raises(InputError, match="n_jobs must be an integer other than 0"):
            aligner.fit(X, [Y] * 4)
    fitted = GDM(2).fit(X, [Y] * 4).set_params(n_jobs=jobs)  # as in a foreign file
    with pytest.raises(InputError, match="n_jobs must be an integer other than 0"):
        fitted.transform(X)


def test_wrong_kinds_of_subjects_and_samples_are_named(X):
    model = GDM(2, graph="time").fit(X)
    with pytest.raises(TypeError, match="subjects of GDM must be a list, got dict"):
        model.transform(X, subjects={"first": 0})
    rows = model.maps_[0].transform([row.tolist() for row in X[0][:3]])
    assert_allclose(rows, model.maps_[0].transform(X[0][:3]))

    class Masker:
        def inverse_transform(self, image):
            raise AssertionError

    with pytest.raises(TypeError, match="is a Masker, not samples"):
        model.maps_[0].transform(Masker())
    many = {f"s{i:02}": X[0] for i in range(12)}
    named = GDM(2, graph="time").fit(many)
    with pytest.raises(InputError, match="and 4 more"):
        named.transform([X[0]], subjects=["nobody"])


def test_a_graph_that_is_made_of_labels_needs_them(X):
    with pytest.raises(InputError, match="graph of GDM is a callable"):
        GDM(1, graph=bw.label_graph).fit(X)


def test_a_subject_of_whom_nothing_is_known_is_named(X):
    with pytest.raises(InputError, match=r"2 groups .*; X\[3\]\."):
        GDM(1, place=None).fit(X, [Y, Y, Y, None])


def test_row_numbers_count_from_zero_to_the_last():
    assert check_indices("samples", [4, 0, 4], 5, what="row").tolist() == [4, 0, 4]
    assert check_indices("samples", [], 5, what="row").size == 0
    for wrong in ([-1, 3], [-2, -1], [0, 5], [5]):
        with pytest.raises(InputError, match="row numbers from 0 to 4"):
            check_indices("samples", wrong, 5, what="row")
    for wrong in ([0.0, 1.0], ["a"], [[0, 1]], 3):
        with pytest.raises(InputError, match="must be row numbers"):
            check_indices("samples", wrong, 5, what="row")


def test_values_that_would_be_lost_are_refused():
    study = labelled_study()
    X, y = [s.samples for s in study], [s.labels for s in study]
    models = [GDM(2).fit(X, y), NoAlignment().fit(X), SRM(2, random_state=0).fit(X)]
    masked = np.ma.MaskedArray(X[0], mask=X[0] > 3)
    for bad, error, message in (
        (scipy.sparse.csr_array(X[0]), TypeError, "sparse"),
        (X[0] + 1j, TypeError, "real numbers"),
        (masked, InputError, "masked values"),
    ):
        with pytest.raises(error, match=message):
            Subject("s0", bad)
        for model in models:
            with pytest.raises(error, match=message):
                model.fit([bad, *X[1:]], y)
            with pytest.raises(error, match=message):
                model.transform([bad], [0])
            with pytest.raises(error, match=message):
                model.fit_new_subject(bad, y[0])
    unmasked = np.ma.MaskedArray(X[0], mask=False)
    np.testing.assert_array_equal(
        GDM(2).fit([unmasked, *X[1:]], y).eigenvalues_, models[0].eigenvalues_
    )


def test_arrays_in_the_order_of_brainiak_are_noticed():
    rng = np.random.default_rng(0)
    own = [rng.normal(size=(40, v)) for v in (60, 70, 80)]
    with pytest.raises(InputError, match=r"BrainIAK takes voxels x samples.*x\.T"):
        SRM(2).fit([x.T for x in own])
    same = [rng.normal(size=(20, 2500)) for _ in range(2)]
    srm = SRM(2, max_iter=1, tol=0, random_state=0)
    with pytest.warns(LayoutWarning, match="2500 rows and 20 columns"):
        srm.fit([x.T for x in same])
    srm.fit(same)
    srm.fit([rng.normal(size=(300, 100)) for _ in range(2)])  # Pieman's shape


@pytest.mark.parametrize("cut", [slice(1, None), slice(None, -1)])
def test_labels_that_are_off_by_one_are_refused(cut):
    X, y = three_subjects()
    with pytest.raises(InputError, match=r"y\[1\] has \d+ labels for \d+ samples"):
        GDM(3).fit(X, [y[0], np.asarray(y[1])[cut], y[2]])
