"""Places of pieces: what a local aligner knows of where voxels lie."""

import warnings

import nibabel as nib
import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

from brainweave import GDM, Parcelwise, Searchlight, Study, Subject, alignment_check
from brainweave import load as load_model
from brainweave import save as save_model
from brainweave._core.exceptions import InputError
from brainweave.basis import places as places_module
from brainweave.study.spaces import VolumeSpace

SHAPE, AFFINE = (6, 5, 4), np.diag([4.0, 4, 4, 1])
ATLAS = np.where(np.arange(6)[:, None, None] < 3, 1, 2) * np.ones(SHAPE, int)
SETTINGS = {"n_components": 2, "shrinkage": 0.3, "place_shrinkage": 0.1}


def brains(rng, n=4, noise=1.0):
    """Return subjects on one grid, with masks and voxel counts of their own."""
    maps, signal = rng.normal(size=(3, *SHAPE)), rng.normal(size=(6, 3))
    y = np.arange(24) % 6
    found = []
    for i in range(n):
        mask = rng.random(SHAPE) < 0.8
        X = signal[y] @ maps[:, mask]
        X = X + noise * rng.normal(size=X.shape)
        space = VolumeSpace.from_mask(mask, AFFINE)
        found.append(
            Subject(f"s{i}", X, labels=y, runs=np.arange(24) // 6, space=space)
        )
    assert len({s.n_voxels for s in found}) > 1
    return found


def columns_of(subject, label):
    return np.flatnonzero(ATLAS[subject.space.mask] == label)


def identity(subject, label):
    """Return the places of a parcel: voxels of the grid."""
    at = np.flatnonzero(subject.space.mask)[columns_of(subject, label)]
    return scipy.sparse.eye_array(ATLAS.size, format="csr")[at]


def cubes(subject, label):
    """Return the places of a parcel: means of its voxels in cubes of 8 mm."""
    at = np.argwhere(subject.space.mask)[columns_of(subject, label)] // 2
    where = np.ravel_multi_index(at.T, (3, 3, 2))
    B = np.eye(18)[where]
    return B / np.maximum(B.sum(axis=0), 1)


def piece(subjects, label, matrix, settings=SETTINGS):
    X = [s.data()[:, columns_of(s, label)] for s in subjects]
    place = [scipy.sparse.csr_array(matrix(s, label)) for s in subjects]
    return GDM(**settings, place=place).fit(X, [s.labels for s in subjects])


def atlas():
    return nib.Nifti1Image(ATLAS.astype(np.int32), AFFINE)


@pytest.mark.parametrize("matrix", [identity, cubes])
def test_a_parcel_is_fitted_as_alone_with_its_places(rng, monkeypatch, matrix):
    if matrix is cubes:
        monkeypatch.setattr(places_module, "MOST_COLUMNS", 3)
    subjects = brains(rng)
    model = Parcelwise(GDM(**SETTINGS), atlas()).fit(Study(subjects))
    for k, label in enumerate(model.parcels_):
        alone = piece(subjects, label, matrix)
        assert model.aligners_[k].place_.used
        for i in range(len(subjects)):
            columns, local, _ = model.maps_[i].parts[k]
            assert (columns == columns_of(subjects[i], label)).all()
            assert_allclose(local.weights, alone.maps_[i].weights, atol=1e-9)


def test_strengths_of_a_parcel_are_chosen_as_alone(rng):
    subjects, settings = brains(rng, 6, noise=4.0), {"n_components": 2}
    model = Parcelwise(GDM(**settings), atlas()).fit(Study(subjects))
    for k, label in enumerate(model.parcels_):
        X = [s.data()[:, columns_of(s, label)] for s in subjects]
        place = [identity(s, label) for s in subjects]
        used = np.flatnonzero(sum(abs(B).sum(axis=0) for B in place))
        alone = GDM(**settings, place=[B[:, used] for B in place])
        alone._runs = [s.runs for s in subjects]
        alone.fit(X, [s.labels for s in subjects])
        chosen, wanted = model.aligners_[k].place_, alone.place_
        assert chosen.ridge == wanted.ridge
        for i in range(len(subjects)):
            local = model.maps_[i].parts[k][1]
            assert_allclose(local.weights, alone.maps_[i].weights, atol=1e-8)


def test_a_searchlight_is_fitted_as_alone_with_its_places(rng):
    subjects = brains(rng)
    at = [np.argwhere(s.space.mask) for s in subjects]
    near = [np.flatnonzero(np.linalg.norm(a - at[0][20], axis=1) <= 2.5) for a in at]
    model = Searchlight(GDM(**SETTINGS), radius=10, centers=[20]).fit(Study(subjects))
    place = [
        scipy.sparse.eye_array(ATLAS.size, format="csr")[
            np.flatnonzero(s.space.mask)[n]
        ]
        for s, n in zip(subjects, near, strict=True)
    ]
    X = [s.data()[:, n] for s, n in zip(subjects, near, strict=True)]
    alone = GDM(**SETTINGS, place=place).fit(X, [s.labels for s in subjects])
    for own, n, m in zip(model.maps_, near, alone.maps_, strict=True):
        wanted = m.weights @ alone.maps_[0].patterns
        assert_allclose(own.weights.toarray()[np.ix_(n, near[0])], wanted, atol=1e-9)


@pytest.mark.parametrize("kind", ["labels", "matrices", "one matrix"])
def test_places_that_are_given_are_cut_to_the_parcels(rng, kind):
    subjects = brains(rng)
    if kind == "one matrix":
        space = subjects[0].space
        subjects = [
            Subject(
                f"{i}", rng.normal(size=(24, space.n_voxels)), labels=s.labels
            )._replace(space=space)
            for i, s in enumerate(subjects)
        ]
    labels = [1 + np.argwhere(s.space.mask)[:, 1] for s in subjects]
    matrices = [np.eye(6)[own][:, 1:] * 0.3 for own in labels]
    place = {"labels": labels, "matrices": matrices, "one matrix": matrices[0]}[kind]
    model = Parcelwise(GDM(**SETTINGS, place=place), atlas()).fit(Study(subjects))
    for k, label in enumerate(model.parcels_):

        def rows(subject, label):
            B = matrices[subjects.index(subject)][columns_of(subject, label)]
            if kind == "labels":
                B = (B > 0) / np.maximum((B > 0).sum(axis=0), 1)
            return B

        alone = piece(subjects, label, rows)
        for own, m in zip(model.maps_, alone.maps_, strict=True):
            assert_allclose(own.parts[k][1].weights, m.weights, atol=1e-9)


def test_a_subject_without_aligning_data_gets_the_shared_maps(rng, tmp_path):
    *subjects, new = brains(rng, 5)
    model = Parcelwise(GDM(**SETTINGS), atlas()).fit(Study(subjects))
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    unlabelled = Subject("new", new.data(), space=new.space)
    for one in (model, again):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = one.fit_new_subject(unlabelled)
        for k, label in enumerate(model.parcels_):
            alone = piece(subjects, label, identity)
            shared = alone.shared_ * alone.shared_amplitude_ * alone.scale_
            wanted = identity(new, label) @ shared
            assert_allclose(found.parts[k][1].weights, wanted, atol=1e-9)


def test_a_new_subject_deviates_from_the_shared_map_of_each_parcel(rng):
    *subjects, new = brains(rng, 5)
    model = Parcelwise(GDM(**SETTINGS), atlas()).fit(Study(subjects))
    found = model.fit_new_subject(new)
    zero_shot = model.fit_new_subject(Subject("new", new.data(), space=new.space))
    for k, label in enumerate(model.parcels_):
        # the whole route of a GDM, with labels of places that hold for all
        X = [s.data()[:, columns_of(s, label)] for s in (*subjects, new)]
        names = [
            1 + np.flatnonzero(s.space.mask)[columns_of(s, label)]
            for s in (*subjects, new)
        ]
        alone = GDM(**SETTINGS, place=names[:-1]).fit(
            X[:-1], [s.labels for s in subjects]
        )
        alone.place = names[-1]
        wanted = alone.fit_new_subject(X[-1], new.labels).weights
        assert_allclose(found.parts[k][1].weights, wanted, atol=1e-9)
        assert not np.allclose(zero_shot.parts[k][1].weights, wanted)


def test_subjects_on_other_grids_share_no_places(rng):
    subjects = brains(rng)
    moved = AFFINE.copy()
    moved[0, 3] = 2.0
    other = VolumeSpace.from_mask(subjects[0].space.mask, moved)
    subjects[0] = subjects[0]._replace(space=other)
    model = Parcelwise(GDM(n_components=2), atlas()).fit(Study(subjects))
    told = {str(local.place_) for local in model.aligners_}
    assert told == {"No shared map: the subjects are not in one space."}
    unlabelled = Subject("new", subjects[1].data(), space=subjects[1].space)
    with pytest.raises(InputError, match="labels, ids or rows"):
        model.fit_new_subject(unlabelled)


def test_equal_columns_of_arrays_are_places_of_a_parcel(rng):
    X = [rng.normal(size=(24, 20)) for _ in range(3)]
    y = [np.arange(24) % 4] * 3
    model = Parcelwise(GDM(**SETTINGS), np.repeat([1, 2], 10)).fit(X, y)
    for k in range(2):
        own = [x[:, 10 * k : 10 * k + 10] for x in X]
        alone = GDM(**SETTINGS, place=np.eye(10)).fit(own, y)
        for i, m in enumerate(alone.maps_):
            assert_allclose(model.maps_[i].parts[k][1].weights, m.weights, atol=1e-9)


def test_pieces_are_checked_with_their_places(rng):
    subjects = brains(rng)
    model = Parcelwise(GDM(**SETTINGS), atlas()).fit(Study(subjects))
    table = alignment_check(model, Study(subjects)).pieces
    for label in model.parcels_:
        X = [s.data()[:, columns_of(s, label)] for s in subjects]
        place = [identity(s, label) for s in subjects]
        alone = GDM(**SETTINGS, place=place)
        alone._runs = [s.runs for s in subjects]
        check = alignment_check(alone.fit(X, [s.labels for s in subjects]))
        assert_allclose(table.loc[label, "agreement"], check.agreement, atol=1e-8)


@pytest.mark.parametrize(
    "structures", [("CORTEX_LEFT",), ("CORTEX_LEFT", "THALAMUS_LEFT")]
)
def test_grayordinates_are_named_by_vertex_and_voxel(structures):
    from nibabel.cifti2 import BrainModelAxis, Cifti2Image, ScalarAxis

    from brainweave.study.surface import CiftiSpace

    vertices = BrainModelAxis.from_surface([0, 2, 5], 8, "CORTEX_LEFT")
    volume = np.zeros((2, 2, 2), bool)
    volume[1, 0, 1] = True
    voxels = BrainModelAxis.from_mask(volume, "THALAMUS_LEFT", np.eye(4))
    axis = vertices if len(structures) == 1 else vertices + voxels
    data = np.zeros((1, len(axis)))
    space = CiftiSpace(Cifti2Image(data, header=(ScalarAxis(["map"]), axis)))
    frame, names, _ = space.voxel_labels()
    assert ("affine" in frame) == (
        len(structures) == 2
    )  # voxels of another grid differ
    assert [n.split("-")[1] for n in names[:3]] == ["0", "2", "5"]
    assert len(set(names)) == len(axis)
