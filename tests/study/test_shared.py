"""Studies in the shared space, subjects that join, and files of any format."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave.study.formats.any_format import load_study
from brainweave.study.provenance import describe_record
from brainweave.study.shared import ZERO_SHOT


@pytest.fixture(scope="module")
def study():
    return bw.simulate_study(n_subjects=4, n_voxels=(50, 60), categories=3, n_runs=2)


def test_a_study_is_mapped_and_remembers_which_samples_aligned(study):
    aligning, other = study.split_halves("run")
    model = bw.GDM(2).fit(aligning)
    shared = bw.transform_study(model, study)
    assert shared.ids == study.ids
    for s, want, flags in zip(
        shared, model.transform(study), model.took_part(study), strict=True
    ):
        assert_allclose(s.data(), want, rtol=0, atol=1e-12)
        assert s.aligned.tolist() == flags.tolist()
    new = bw.transform_study(model, study, only_new=True)
    assert [s.n_samples for s in new] == [s.n_samples for s in other]
    assert not any(s.aligned.any() for s in new)
    with pytest.raises(bw.InputError, match="took part in the alignment"):
        bw.transform_study(model, aligning, only_new=True)
    three = bw.GDM(2).fit(aligning.subset(subjects=["01", "02", "03"]))
    with pytest.raises(bw.InputError, match="does not know subject '04'"):
        bw.transform_study(three, study)


def test_subjects_join_without_changing_the_others(study):
    three = study.subset(subjects=["01", "02", "03"])
    model = bw.GDM(2).fit(three)
    before = [map_.weights for map_ in model.maps_]
    want = model.fit_new_subject(study["04"]).weights
    bw.add_subjects(model, study.subset(subjects=["04"]))
    assert model.ids_ == study.ids
    assert model.n_subjects_ == 4
    for map_, weights in zip(model.maps_, [*before, want], strict=True):
        assert_allclose(map_.weights, weights, rtol=0, atol=1e-12)


def test_files_are_read_by_their_kind(study, tmp_path):
    study.save(tmp_path / "study")
    copied = load_study(tmp_path / "study", subjects=["02"], name="one")
    assert (copied.ids, copied.name) == (["02"], "one")
    study.to_bids(tmp_path / "bids")
    read = load_study([tmp_path / "bids"])
    assert read.ids == study.ids
    np.save(tmp_path / "x.npy", np.eye(3))
    with pytest.raises(bw.InputError, match="is not clear"):
        load_study(tmp_path / "x.npy")


def registered(n_subjects=5, seed=3):
    """Subjects whose columns are the same places, with labels."""
    rng = np.random.default_rng(seed)
    centroids, y = rng.normal(size=(4, 30)), np.tile(np.arange(4), 12)
    return bw.Study(
        bw.Subject(
            f"{i + 1:02}", centroids[y] + rng.normal(size=(48, 30)), labels=y.tolist()
        )
        for i in range(n_subjects)
    )


def test_people_without_aligning_data_are_mapped_by_the_shared_map():
    people = registered()
    model = bw.GDM(2, place_shrinkage=0.1).fit(people[:4])
    shared = bw.transform_study(model, people, new=True)
    assert_allclose(shared["05"].data(), model.shared_map_.transform(people["05"]))
    assert_allclose(shared["01"].data(), model.transform(people[:4])[0])
    assert [bool(s.aligned.any()) for s in shared] == [True] * 4 + [False]
    told = {"subjects": ["05"], "how": ZERO_SHOT}
    assert shared.record == {"zero_shot": told}
    assert (
        dict(describe_record(shared.record))["new subjects"] == f"sub-05; {ZERO_SHOT}"
    )
    assert bw.transform_study(model, people[:4], new=True).record is None
    # the labels of a person who is mapped are not needed
    unknown = bw.Study([bw.Subject("05", people["05"].data())])
    again = bw.transform_study(model, unknown, new=True)
    assert_allclose(again["05"].data(), shared["05"].data())


def test_a_model_without_a_shared_map_says_why_nobody_is_mapped_by_it():
    people = registered()
    without = bw.GDM(2, place=None).fit(people[:4])
    with pytest.raises(bw.InputError, match=r"'05' .* No shared map: place=None\."):
        bw.transform_study(without, people, new=True)
    other = bw.DetSRM(2, random_state=0).fit(people[:4])
    with pytest.raises(bw.InputError, match="DetSRM has no shared map; GDM has one"):
        bw.transform_study(other, people, new=True)
    with pytest.raises(bw.InputError, match="new=True maps it"):
        bw.transform_study(without, people)
