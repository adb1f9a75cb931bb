"""Places of brain spaces in a model: unequal masks, atlases, files, zero-shot."""

import nibabel as nib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from brainweave import (
    GDM,
    InputError,
    load,
    save,
    simulate_brains,
    split_study,
    time_segment_matching,
)
from brainweave._core.exceptions import SeparateSubjectsWarning, StudyError
from brainweave.evaluation.evaluate import align_folds


@pytest.fixture(scope="module")
def brains():
    return simulate_brains(
        5,
        shape=(9, 10, 9),
        n_components=4,
        n_samples=80,
        films=["a", "b"],
        signal=0.6,
        misregistration_mm=2,
        mask_variability=0.05,
        random_state=3,
    )


def film(study, name):
    return study.map(lambda s: s.select(s.runs == name))


def fitted(study, **params):
    aligning = film(study, "a")[:4]
    return GDM(4, graph="time", n_jobs=1, **params).fit(
        aligning, [s.stimuli for s in aligning]
    )


@pytest.fixture(scope="module")
def model(brains):
    return fitted(brains)


def test_unequal_masks_share_supervoxels(brains, model):
    assert len({s.n_voxels for s in brains}) > 1
    assert model.place_.used
    assert "supervoxels of 8 mm" in str(model.place_)
    names = {n for s in brains.subjects[:4] for n in s.space.place_labels()[1]}
    assert set(model.place_.names) == names


def zero_shot(model, brains):
    scored = film(brains, "b")
    known = model.transform([s.data() for s in scored[:4]])
    new = model.shared_map_.transform(scored[4])
    return float(time_segment_matching([new, np.mean(known, axis=0)]).scores[0])


def test_people_without_aligning_data_are_mapped_by_place(brains, model):
    assert zero_shot(model, brains) > 0.5  # chance is below .02
    someone = film(brains, "b")[4]._replace(stimuli=None)
    joined = model.fit_new_subject(someone)
    expected = model.shared_map_.transform(someone)
    assert_allclose(joined.transform(someone.data()), expected, atol=1e-4)


def test_a_saved_model_maps_them_too(brains, model, tmp_path):
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.place_ == model.place_
    someone = film(brains, "b")[4]
    expected = model.shared_map_.transform(someone)
    assert_allclose(again.shared_map_.transform(someone), expected, atol=1e-6)


def test_the_shared_map_is_shown_on_anyones_brain(brains, model):
    like = brains[4]
    image = model.shared_map_.to_image(1, like=like)
    values = image.get_fdata()[like.space.mask]
    place_of = {name: j for j, name in enumerate(model.place_.names)}
    weights = model.shared_map_.weights[:, 1]
    for value, name in zip(values, like.space.place_labels()[1], strict=True):
        expected = weights[place_of[name]] if name in place_of else 0.0
        assert value == pytest.approx(expected, abs=1e-6)


def test_a_subject_without_a_voxel_in_some_places_can_join(brains, model):
    whole = film(brains, "b")[4]
    mask = whole.space.mask.copy()
    mask[:4] = False
    space = type(whole.space).from_mask(mask, whole.space.affine)
    part = whole._replace(
        samples=whole.data()[:, mask[whole.space.mask]], space=space, stimuli=None
    )
    own = model.shared_map_.map_for(part)
    whole_weights = model.shared_map_.map_for(whole).weights
    assert own.n_voxels == part.n_voxels
    whole_labels = np.array(whole.space.place_labels()[1])
    labels = np.array(space.place_labels()[1])
    # places that lie in what is left have the same weights
    kept = mask[whole.space.mask]
    complete = [n for n in np.unique(labels) if kept[whole_labels == n].all()]
    rows = np.isin(labels, complete)
    assert rows.any()
    assert_allclose(own.weights[rows], whole_weights[kept][rows])


def test_subjects_in_another_space_are_refused(brains, model):
    someone = film(brains, "b")[4]
    affine = someone.space.affine.copy()
    affine[0, 3] += 2
    moved = type(someone.space).from_mask(someone.space.mask, affine)
    with pytest.raises(InputError, match="the new subject is not in that space"):
        model.shared_map_.transform(someone._replace(space=moved))


def atlas_of(brains, factor=2):
    """An atlas on a grid of its own: coarser, and moved by no voxel."""
    affine = brains[0].space.affine.copy()
    affine[:3, :3] *= factor
    affine[:3, 3] += (factor - 1) * 4.0 / 2
    shape = tuple(-(-n // factor) for n in brains[0].space.mask.shape)
    numbers = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    return nib.Nifti1Image(numbers, affine)


def test_places_can_be_those_of_an_atlas(brains, tmp_path):
    atlas = atlas_of(brains)
    model = fitted(brains, place=atlas, place_shrinkage=0.1)
    numbers = np.asarray(atlas.dataobj)
    seen = set()
    for subject in brains.subjects[:4]:
        at = tuple((np.argwhere(subject.space.mask) // 2).T)
        seen |= set(numbers[at].tolist())
    assert set(model.place_.names) == seen - {0}
    assert zero_shot(model, brains) > 0.5
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    someone = film(brains, "b")[4]
    expected = model.shared_map_.transform(someone)
    assert_allclose(again.shared_map_.transform(someone), expected, atol=1e-6)


def test_an_atlas_needs_to_know_where_voxels_are(brains):
    X = [s.data() for s in film(brains, "a")]
    y = [np.arange(80)] * 5
    for place in (atlas_of(brains), "a.nii"):
        gdm = GDM(2, graph="time", place=place)
        with pytest.raises(InputError, match=r"X\[0\] does not know where its voxels"):
            gdm.fit(X, y)
    with pytest.raises(StudyError, match=r"'a.nii' is neither a file nor an atlas"):
        GDM(2, graph="time", place="a.nii").fit(film(brains, "a"))


def test_an_evaluation_knows_the_places_of_unequal_masks(brains):
    split = split_study(film(brains, "b"), align=[film(brains, "a")])
    gdm = GDM(4, graph="time", place_shrinkage=0.1, shrinkage=1.0, n_jobs=1)
    (batch,) = align_folds(gdm, split, protocol="joint", n_jobs=1)
    aligning = film(brains, "a")
    alone = gdm.fit(aligning, [s.stimuli for s in aligning])
    assert batch[0].aligner.place_.n_places == alone.place_.n_places > 0
    expected = alone.transform([s.data() for s in film(brains, "b")])
    for found, wanted in zip(batch[0].features, expected, strict=True):
        assert_allclose(found, wanted, atol=1e-4)


def test_groups_without_a_common_film_are_tied_by_place():
    films = [["a", "c"], ["a", "c"], ["b", "c"], ["b", "c"]]
    study = simulate_brains(
        4, shape=(9, 10, 9), n_components=4, n_samples=80, films=films, signal=0.6
    )
    aligning = study.map(lambda s: s.select(s.runs == s.runs[0]))
    y = [s.stimuli for s in aligning]
    with pytest.warns(SeparateSubjectsWarning, match="only the 82 places"):
        model = GDM(4, graph="time", n_jobs=1).fit(aligning, y)
    assert model.place_.used
    shared = model.transform([s.data() for s in film(study, "c")])
    first, second = np.mean(shared[:2], axis=0), np.mean(shared[2:], axis=0)
    assert time_segment_matching([first, second]).mean > 0.5
    with pytest.raises(InputError):
        GDM(4, graph="time", place=None).fit(aligning, y)


def test_labels_of_voxels_are_those_of_the_image(brains):
    image = atlas_of(brains)
    by_image = fitted(brains, place=image, place_shrinkage=0.1, shrinkage=1.0)
    labels = []
    for subject in brains.subjects[:4]:
        at = tuple((np.argwhere(subject.space.mask) // 2).T)
        labels.append(np.asarray(image.dataobj)[at])
    by_label = fitted(brains, place=labels, place_shrinkage=0.1, shrinkage=1.0)
    assert_array_equal(by_image.place_.names, by_label.place_.names)
    assert_allclose(by_image.shared_, by_label.shared_)
