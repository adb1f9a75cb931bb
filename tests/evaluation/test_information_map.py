"""Information maps: a planted region is found, noise is not, and images are right."""

import json
from functools import cache

import nibabel as nib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.spatial import ConvexHull

from brainweave import (
    GDM,
    DetSRM,
    InputError,
    NoAlignment,
    Parcelwise,
    Searchlight,
    SkippedWarning,
    Study,
    Subject,
    information_map,
    score_alignment,
    split_study,
)
from brainweave.evaluation.comparison import flip_tests
from brainweave.evaluation.evaluate import score_folds
from brainweave.study.spaces import VolumeSpace
from brainweave.study.surface import SurfaceSpace

SHAPE, MM = (10, 10, 10), 4.0
AFFINE = np.diag([MM, MM, MM, 1])
# 64 parcels, cubes of 2 or 3 voxels a side; the planted region is one of them
CUBES = np.add.outer(np.add.outer(*[np.arange(10) * 4 // 10 * k for k in (16, 4)]),
                     np.arange(10) * 4 // 10) + 1  # fmt: skip
REGION = CUBES == 43
FILM = 80


def planted_brains(seed, n_subjects=12, signal=1.0):
    """Return people who share a film in one region, in directions of their own."""
    rng = np.random.default_rng([seed, 28])
    story = rng.normal(size=(FILM, 4))
    people = []
    for i in range(n_subjects):
        noise = rng.normal(size=(FILM, 4)) @ rng.normal(size=(4, CUBES.size))
        X = rng.normal(size=(FILM, CUBES.size)) + noise / 4
        X[:, REGION.ravel()] += signal * story @ rng.normal(size=(4, REGION.sum())) / 2
        mask = rng.random(SHAPE) < 0.95  # masks differ
        people.append(
            Subject(
                f"{i:02}",
                X[:, mask.ravel()].astype(np.float32),
                stimuli=[f"film:{t}" for t in range(FILM)],
                space=VolumeSpace.from_mask(mask, AFFINE),
            )
        )
    return Study(people)


def false_and_true(found, study, p="p_fdr"):
    """Count the places found that do not touch the planted region, and that do.

    Masks differ: a place touches the region if it does so in any subject.
    """
    inside = [REGION[s.space.mask] for s in study]
    touches = [
        any(
            own[columns[k]].any()
            for own, columns in zip(inside, found.columns, strict=True)
        )
        for k in np.flatnonzero(found.to_frame()[p] < 0.05)
    ]
    return touches.count(False), touches.count(True)


@cache
def quick_map(by):
    aligner = GDM(4, graph="time", place=None, shrinkage=0.5)
    atlas = nib.Nifti1Image(CUBES.astype(np.int16), AFFINE)
    piecewise = {
        "parcels": lambda: Parcelwise(aligner, atlas),
        "searchlight": lambda: Searchlight(aligner, 10, spacing=10),
    }[by]()
    study = planted_brains(0, 11)
    return study, information_map(piecewise, study, leave_out=5)


@pytest.mark.parametrize("by", ["parcels", "searchlight"])
@pytest.mark.slow
def test_a_planted_region_is_found_and_nothing_else(by):
    study, found = quick_map(by)
    false, true = false_and_true(found, study)
    assert false == 0
    assert true >= 1
    assert found.measure == "matching"


BRAINS = range(20)


@pytest.mark.thorough
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("by", ["parcels", "searchlight"])
def test_planted_regions_of_many_brains(by):
    aligner = GDM(4, graph="time")
    atlas = nib.Nifti1Image(CUBES.astype(np.int16), AFFINE)
    counts = []
    for seed in BRAINS:
        study = planted_brains(seed)
        piecewise = (
            Parcelwise(aligner, atlas)
            if by == "parcels"
            else Searchlight(aligner, 8, spacing=8)
        )
        found = information_map(piecewise, study, leave_out=4)
        pair = [false_and_true(found, study, p) for p in ("p_fdr", "p_max")]
        counts.append((*pair[0], *pair[1]))
        print(by, len(found.names), seed, *counts[-1], flush=True)
    false, true, false_max, true_max = np.array(counts).T
    print(f"{by}: false and true places, and brains with a false one")
    for what, no, yes in (("FDR", false, true), ("maximum", false_max, true_max)):
        print(what, no.sum(), yes.sum(), (no > 0).sum(), flush=True)
    assert (true >= 1).all()
    # of what is found, at most the rate that is controlled is false
    assert false.sum() <= 0.05 * (false + true).sum() + 1
    # on average one of 20 brains has any, and more than three in 1.6 % of such tests
    assert (false_max > 0).sum() <= 3


def test_a_place_scores_as_its_voxels_alone(rng):
    y, parcels = [[0, 1, 2] * 8] * 4, np.repeat([1, 2], 15)
    X = [rng.normal(size=(24, 30)) for _ in y]
    for x in X:
        x[:, :15] += rng.normal(size=(3, 15))[y[0]]
    aligner = GDM(2, shrinkage=0.5, place=None)
    found = information_map(Parcelwise(aligner, parcels), X, y)
    for k, own in enumerate([slice(15), slice(15, 30)]):
        alone = score_alignment(aligner, [x[:, own] for x in X], y)
        assert_allclose(found.scores[k].mean(), alone.mean)
        assert_allclose(found.chance[k], alone.chance)
        none = score_alignment(NoAlignment(), [x[:, own] for x in X], y)
        assert_allclose(found.baseline[k].mean(), none.mean)
    split = split_study(X, y)
    again = information_map(Parcelwise(aligner, parcels), split)
    assert_array_equal(again.scores, found.scores)
    parallel = information_map(Parcelwise(aligner, parcels, n_jobs=2), X, y)
    assert_array_equal(parallel.scores, found.scores)


@pytest.mark.parametrize("most", [10, 2048])
def test_large_places_use_supervoxels_as_parcels_do(most, rng, monkeypatch):
    for module in ("evaluation.information_map", "basis.places"):
        monkeypatch.setattr(f"brainweave.{module}.MOST_COLUMNS", most)
    y = [0, 1, 2] * 6
    pattern = rng.normal(size=(3, 60))
    people = []
    for i in range(4):
        mask = np.zeros((4, 4, 4), bool)
        mask.flat[rng.permutation(64)[: 60 - i]] = True  # masks differ
        X = rng.normal(size=(18, 60)) + pattern[y]
        space = VolumeSpace.from_mask(mask, AFFINE)
        people.append(Subject(f"{i:02}", X[:, : 60 - i], labels=y, space=space))
    atlas = nib.Nifti1Image(np.ones((4, 4, 4), np.int16), AFFINE)
    model = Parcelwise(GDM(2, shrinkage=0.5, place_shrinkage=0.1), atlas)
    found = information_map(model, Study(people))
    whole = score_alignment(model, Study(people))
    assert_allclose(found.scores.mean(), whole.mean)
    seen = []

    def fold(aligner, *rest, **options):
        if not isinstance(aligner, NoAlignment):
            seen.append({len(set(s.space.names)) for s in rest[0].splits[0].aligning})
        return score_folds(aligner, *rest, **options)

    monkeypatch.setattr("brainweave.evaluation.information_map.score_folds", fold)
    information_map(model, Study(people))
    assert seen == [{8}] * 2 if most == 10 else max(seen[0]) == 60


@pytest.mark.parametrize("protocol", ["held-out", "joint"])
def test_what_the_data_choose_is_chosen_in_each_fold(protocol, rng, monkeypatch):
    y = [[0, 1, 2] * 6] * 4
    X = [rng.normal(size=(18, 12)) for _ in y]
    how = {"halves": [np.arange(18) < 9] * 4, "protocol": protocol, "leave_out": 2}
    local = GDM(2, place=None)
    alone = score_alignment(local, X, y, **how)
    found = information_map(Parcelwise(local, np.ones(12, int)), X, y, **how)
    assert_allclose(found.scores.mean(), alone.mean)
    # neighbourhoods of all voxels settle for all what any of them would choose
    monkeypatch.setattr("brainweave.aligners.piecewise.piecewise.MANY_PIECES", 2)
    line = np.arange(12.0)[:, None]
    light = Searchlight(local, radius=99, coordinates=line, centers=[0, 5, 11])
    settled = information_map(light, X, y, **how)
    assert_allclose(settled.scores, np.repeat(found.scores, 3, axis=0))
    if protocol == "held-out":
        chosen = []

        def record(self, fits):
            chosen.append({len(f.maps_) for f in fits})
            return {"shrinkage": 0.5}

        monkeypatch.setattr(GDM, "_settled_by", record)
        information_map(light, X, y, **how)
        assert chosen == [{2}] * 4  # of four subjects, in two halves of two folds


def test_sign_flips_agree_with_scipy(rng):
    values = rng.normal(0.3, 1, size=(20, 8))
    found = flip_tests(values)
    two = flip_tests(values, two_sided=True)
    for k, own in enumerate(values):
        for sides, p in (("greater", found["p"][k]), ("two-sided", two["p"][k])):
            expected = stats.permutation_test(
                (own,), np.mean, permutation_type="samples", n_resamples=np.inf,
                alternative=sides,
            ).pvalue  # fmt: skip
            assert_allclose(p, min(expected, 1))
    assert_allclose(found["p_fdr"], stats.false_discovery_control(found["p"]))
    assert (found["p_max"] >= found["p"] - 1e-12).all()
    # one place alone needs no correction
    assert_allclose(flip_tests(values[:1])["p_max"], found["p"][:1])


def test_the_maximum_statistic_controls_false_places(rng):
    # subjects' values are independent noise: at most 5 % of maps have any place
    hits = [
        (flip_tests(rng.normal(size=(40, 7)))["p_max"] < 0.05).any() for _ in range(400)
    ]
    assert stats.binomtest(sum(hits), 400, 0.05, alternative="greater").pvalue > 0.001
    assert sum(hits) > 5  # and it is not never


def test_many_subjects_draw_flips_and_missing_places_stay_missing(rng):
    values = rng.normal(1, 1, size=(300, 20))
    values[7, 3] = np.nan
    found = flip_tests(values)
    assert np.isnan(found["p"][7])
    assert np.nanmin(found["p"]) == 1 / 10000


def test_images_tables_and_files(tmp_path, rng):
    study, found = quick_map("parcels")
    values = found.voxel_values("excess")
    image = found.to_image("excess")
    assert_allclose(image.get_fdata()[study[0].space.mask], np.nan_to_num(values))
    k = found.names.index(43)
    table = found.to_frame()
    excess = table["score"][k] - table["chance"][k]
    assert_allclose(values[found.columns[0][k]], excess)
    other = found.to_image("score", subject=1)
    assert_allclose(other.get_fdata()[study[1].space.mask & REGION], table["score"][k])
    paths = found.save(tmp_path, name="task-film")
    assert {p.name for p in paths} >= {
        "task-film_stat-score_statmap.nii.gz", "task-film_places.tsv",
    }  # fmt: skip
    told = json.loads((tmp_path / "task-film_places.json").read_text())
    assert told["Measure"] == "matching"
    assert "above chance in 1 of 64 places" in str(found)
    assert "highest in 43" in str(found)


def test_a_searchlight_shows_the_nearest_centre():
    study, found = quick_map("searchlight")
    values = found.voxel_values("score")
    at = np.argwhere(study[0].space.mask) * MM
    k = np.linalg.norm(at[:, None] - found.centers, axis=2).argmin(axis=1)
    distances = np.linalg.norm(at - found.centers[k], axis=1)
    near = distances < 3.9  # ties may go either way
    assert_allclose(values[near], found.scores.mean(axis=1)[k[near]])


def test_values_are_those_of_all_voxels_also_outside_of_places(rng):
    y, parcels = [[0, 1] * 6] * 3, np.repeat([1, 0, 2, 0], 5)
    X = [rng.normal(size=(12, 20)) for _ in y]
    found = information_map(Parcelwise(DetSRM(1, random_state=0), parcels), X, y)
    values = found.voxel_values()
    assert_array_equal(np.isfinite(values), parcels > 0)
    assert_array_equal(values[10:15], found.scores[1].mean())


def test_meshes_and_coordinates_of_the_users_own_are_shown(rng, tmp_path):
    sphere = rng.normal(size=(40, 3))
    sphere *= 20 / np.linalg.norm(sphere, axis=1, keepdims=True)
    y, space = [0, 1] * 6, SurfaceSpace({"CortexLeft": 40})
    people = [
        Subject(str(i), rng.normal(size=(12, 40)), labels=y, space=space)
        for i in range(3)
    ]
    aligner = DetSRM(1, random_state=0)
    mesh = {"left": (sphere, ConvexHull(sphere).simplices)}
    light = Searchlight(aligner, 25, mesh=mesh, centers=[3, 30])
    found = information_map(light, Study(people))
    values = found.voxel_values()
    assert_array_equal(values[[3, 30]], found.scores.mean(axis=1))
    assert found.save(tmp_path)
    light = Searchlight(aligner, 25, coordinates=sphere, centers=[3, 30])
    found = information_map(light, [s.data() for s in people], [y] * 3)
    assert_array_equal(found.voxel_values()[[3, 30]], found.scores.mean(axis=1))


def test_surfaces_are_written_by_hemisphere_and_drawn(tmp_path, rng):
    space = SurfaceSpace({"CortexLeft": 642, "CortexRight": 642})
    y, parcels = ["a", "b"] * 6, np.repeat([1, 2, 0, 3], 321)
    people = [
        Subject(str(i), rng.normal(size=(12, 1284)), labels=y, space=space)
        for i in range(3)
    ]
    model = Parcelwise(GDM(1, shrinkage=0.5, place=None), parcels)
    found = information_map(model, Study(people))
    names = {p.name for p in found.save(tmp_path)}
    assert {f"hemi-{s}_stat-score_statmap.shape.gii" for s in "LR"} <= names
    figure = found.plot("score")
    assert len([a for a in figure.axes if a.name == "3d"]) == 4


def test_without_corresponding_voxels_there_is_no_baseline(rng):
    y = [[0, 1] * 6] * 3
    X = [rng.normal(size=(12, v)) for v in (10, 11, 12)]
    parcels = [np.ones(v, int) for v in (10, 11, 12)]
    found = information_map(Parcelwise(DetSRM(1, random_state=0), parcels), X, y)
    assert np.isnan(found.baseline).all()
    assert "by alignment" not in str(found)
    with pytest.raises(InputError, match="does not know its brain space"):
        found.to_image()


def test_places_that_cannot_be_scored_are_told(rng):
    y, parcels = [[0, 1] * 6] * 3, np.repeat([1, 2], [10, 1])
    X = [rng.normal(size=(12, 11)) for _ in y]
    with pytest.warns(SkippedWarning, match="1 of 2 parcels were skipped"):
        found = information_map(Parcelwise(DetSRM(1, random_state=0), parcels), X, y)
    assert found.names == [1]
    assert list(found.skipped) == [2]


def test_only_aligners_with_places_are_mapped(rng):
    X = [rng.normal(size=(12, 11)) for _ in range(3)]
    with pytest.raises(TypeError, match=r"takes Parcelwise\(aligner, parcels\)"):
        information_map(DetSRM(1), X)
    given = Parcelwise(GDM(1, place=np.ones(11)), np.ones(11))
    with pytest.raises(InputError, match="place of GDM must be 'auto' or None"):
        information_map(given, X)
