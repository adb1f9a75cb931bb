"""Halves, folds, matched samples and copies, against loops over rows."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from brainweave import (
    GDM,
    SRM,
    NoAlignment,
    PaperGDM,
    Study,
    Subject,
    match_samples,
    split_study,
)
from brainweave._core.exceptions import InputError
from brainweave.evaluation.splits import (
    Split,
    as_study,
    half_masks,
    subject_folds,
)


def study_of(*known, n=12, voxels=3):
    rng = np.random.default_rng(0)
    return Study(
        Subject(f"s{i}", rng.normal(size=(n, voxels)), **own)
        for i, own in enumerate(known)
    )


def literal_halves(at, length, block, border):
    """Whether each place is in the first half, in the second, or between."""
    size = block if block else (length + 1) // 2

    def second(t):
        return (t // size) % 2 == 1

    out = []
    for t in at:
        near = any(
            second(u) != second(u - 1) for u in range(max(1, t - border + 1), t + 1)
        )
        out.append(None if t < 0 or near else second(t))
    return [[v is False for v in out], [v is True for v in out]]


@pytest.mark.parametrize("n", [11, 12])
@pytest.mark.parametrize(
    ("block", "border"), [(None, 0), (None, 2), (3, 0), (4, 1), (1, 0), (5, 3)]
)
def test_halves_of_time_are_those_of_a_loop(n, block, border):
    study = study_of({}, {}, n=n)
    found = half_masks(study, "time", block, border)
    for masks, expected in zip(
        found, literal_halves(range(n), n, block, border), strict=True
    ):
        assert [m.tolist() for m in masks] == [expected] * 2
    ids = [[2 * t for t in range(n)], [2 * t for t in range(n - 1, -1, -1)]]
    ids[1][0] = None
    clocked = study_of({"stimuli": ids[0]}, {"stimuli": ids[1]}, n=n)
    found = half_masks(clocked, "time", block, border)
    for masks, side in zip(found, (0, 1), strict=True):
        for mask, own in zip(masks, ids, strict=True):
            at = [-1 if t is None else t // 2 for t in own]
            assert mask.tolist() == literal_halves(at, n, block, border)[side]


def test_first_films_are_the_first_half():
    for films, second in (("ab", "b"), ("abc", "c"), ("abcd", "cd")):
        ids = [f"{film}@{t}" for film in films for t in range(3)]
        n = len(ids)
        study = study_of({"stimuli": ids}, {"stimuli": ids}, n=n)
        for border in (0, 1):
            first, last = half_masks(study, "film", None, border)
            expected = [v[0] in second for v in ids]
            near = [
                border and expected[t] != expected[t - 1] and t > 0 for t in range(n)
            ]
            kept = ~np.array(near, bool)
            assert_array_equal(last[0], np.array(expected) & kept)
            assert_array_equal(first[1], ~np.array(expected) & kept)
    with pytest.raises(InputError, match=r"at least two films; the ids name .*'a'"):
        half_masks(study_of(*[{"stimuli": [f"a@{t}" for t in range(12)]}] * 2), "film")


def test_settings_of_halves_that_do_not_fit_are_refused():
    plain, labelled = study_of({}, {}), study_of(*[{"labels": list("ab") * 6}] * 2)
    with pytest.raises(InputError, match="block and border divide time"):
        half_masks(labelled, "category", 3)
    with pytest.raises(InputError, match="block and border divide time"):
        half_masks(labelled, "run", None, 1)
    assert len(half_masks(plain, "category", 3)[0]) == 2  # without categories: time
    by_threes = half_masks(labelled, "time", 3)[0][0].tolist()
    assert by_threes == ([True] * 3 + [False] * 3) * 2
    for name, value in (("border", -1), ("block", 0)):
        settings = {"block": None, "border": 0} | {name: value}
        with pytest.raises(ValueError, match=f"{name} of split_study must be >= "):
            half_masks(plain, "time", **settings)
    ids = [list(range(12)), list(range(1, 13))]
    apart = study_of(*({"stimuli": own} for own in ids))
    first, _ = half_masks(apart, "category")  # their rows do not correspond
    assert first[0].sum() == 7
    assert first[1].sum() == 6
    same = study_of(*[{"stimuli": ids[0]}] * 2)
    assert half_masks(same, "category")[0][0].tolist() == [True] * 6 + [False] * 6
    strangers = study_of({"stimuli": ids[0]}, {"stimuli": [t + 50 for t in ids[0]]})
    with pytest.raises(InputError, match="no stimulus id in common"):
        half_masks(strangers, "time")
    late = study_of({"stimuli": ids[0]}, {"stimuli": [*range(6), *[None] * 6]})
    with pytest.raises(InputError, match="'s1' saw nothing of the second half"):
        half_masks(late, "time")


def test_folds_are_consecutive():
    assert subject_folds(3, 1) == [[0], [1], [2]]
    assert subject_folds(5, 2) == [[0, 1], [2, 3], [4]]
    assert subject_folds(3, 2) == [[0, 1], [2]]
    for leave_out in (3, 4):
        with pytest.raises(InputError, match=f"leave_out={leave_out} leaves no subj"):
            subject_folds(3, leave_out)


def test_values_that_never_repeat_are_ids_of_stimuli():
    study = study_of({"labels": list("abcd")}, {"labels": list("bacd")}, n=4)
    for given, kept in (
        ([[3, 1, 2, 0]] * 2, False),
        ([[3, 1, None, 0], [None, None, 5, 6]], False),
        ([[3, 1, 1, 0], [0, 1, 2, 3]], True),  # one repeats
        ([[3, None, None, None], [0, 1, 2, 3]], True),  # one value tells nothing
    ):
        found = as_study(study, given)
        for s, own, values in zip(found, study, given, strict=True):
            if kept:
                assert s.labels.tolist() == values
                assert s.stimuli is None
            else:
                assert s.labels.tolist() == own.labels.tolist()
                assert s.stimuli.tolist() == values
        both = as_study(study, given, keep_labels=True)
        assert [s.labels.tolist() for s in both] == given
    assert as_study(study) is study
    named = as_study({"x": np.ones((4, 2)), "y": np.ones((4, 3))})
    assert named.ids == ["x", "y"]
    listed = as_study([np.ones((4, 2)), study[0]])
    assert listed.ids == ["0", "s0"]
    assert listed.subjects[1] is study[0]


@pytest.mark.parametrize("how", ["truncate", "average", "intersect"])
def test_matching_chooses_the_rows_of_match_samples(how):
    labels = [list("aabbccab"), list("bbcaaaba")]
    study = study_of(*({"labels": y} for y in labels), n=8)
    study = Study(study.subjects, "film", {"settings": {"a": 1}})
    expected = match_samples([s.samples for s in study], labels, how)
    split = split_study(study, align=[study], match=how).splits[0]
    for s, x, y in zip(split.aligning, expected.X, expected.y, strict=True):
        assert_array_equal(s.samples, x)
        assert s.labels.tolist() == list(y)
    told = split.aligning.record["match"]
    assert told["how"] == how
    assert told["had"] == 16
    assert told["used"] == sum(map(len, expected.kept))
    assert told["dropped"] == {
        f"s{i}": 8 - len(rows) for i, rows in enumerate(expected.kept)
    }
    assert split.aligning.record["settings"] == {"a": 1}
    assert split.aligning.name == "film"


def test_what_is_told_of_a_split(rng):
    study = study_of(*[{"labels": list("aabb") * 3}] * 3)
    split = split_study(study, halves="time", block=3, border=1)
    assert split.design == {"match": None, "halves": "time", "block": 3, "border": 1}
    assert split_study(study, halves="time", border=1).design["block"] is None
    assert split.shape == (2, 3)
    assert split.n_subjects == 3
    assert repr(split) == "SplitStudy(3 subjects, 2 splits)"
    about = split.about()
    assert about["n_aligning"] == [[5, 5, 5], [4, 4, 4]]
    assert about["n_scored"] == [[4, 4, 4], [5, 5, 5]]
    assert split_study(split) is split
    for again in ({"border": 1}, {"align": [study]}, {"halves": "time"}):
        with pytest.raises(InputError, match="split already"):
            split_study(split, **again)
    ids = [list(range(12)), [*range(2, 12), 12, 13], [*range(1, 13)]]
    film = split_study(study_of(*({"stimuli": own} for own in ids)), halves="time")
    seen = [
        [sum(t < 7 for t in own) for own in ids],
        [sum(t > 6 for t in own) for own in ids],
    ]
    assert film.about(GDM(2, graph="time"))["n_aligning"] == seen
    assert film.about()["n_aligning"] == seen
    common = [len({t for t in ids[0] if t < 7}.intersection(*ids[1:])), 5]
    assert film.about(SRM(2))["n_aligning"] == [[n] * 3 for n in common]
    part = film.splits[0]
    assert part.for_aligner(SRM(2)) is part.for_aligner(SRM(3))
    assert part.for_aligner(GDM(2, graph="time")) is part
    assert part.for_aligner(object()) is part


def test_y_of_a_split_is_that_of_the_aligner():
    labels, ids = list("aabb"), [4, 5, 6, 7]
    study = study_of({"labels": labels, "stimuli": ids}, {"stimuli": ids}, n=4)
    split = Split(study, study)
    first, second = split.y_for(GDM(2))
    assert first.tolist() == labels
    assert second.tolist() == [None] * 4
    assert [list(y) for y in split.y_for(GDM(2, graph="time"))] == [ids] * 2
    assert split.y_for(object())[0].tolist() == labels
    bare = study_of({}, {}, n=4)
    assert Split(bare, bare).y_for(NoAlignment()) is None
    assert split.n_subjects == 2


def test_bases_are_cut_and_kernels_exchanged_without_reading_again(rng):
    study = study_of(
        {"labels": list("abab") * 3}, {"labels": list("aabb") * 3}, voxels=9
    )
    part = split_study(study).splits[0]
    (whole,) = part.bases_for(GDM(2), [1])
    (cut,) = part.bases_for(PaperGDM(2, energy=0.5), [1])
    assert cut.energy == 0.5
    assert 0 < cut.n_kept < whole.n_kept
    assert cut.gram is whole.gram
    assert cut.space is part.aligning.subjects[1].space
    (raw,) = part.bases_for(GDM(2, standardize=False), [1])
    x = part.aligning.subjects[1].samples
    centred = x - x.mean(axis=0)
    np.testing.assert_allclose(raw.gram, centred @ centred.T, atol=1e-12)
    (curved,) = part.bases_for(GDM(2, kernel="gaussian", kernel_params={"hp": 5}), [1])
    assert curved.kernel.name == "gaussian"
    assert whole.name == "subject 's1' (aligning samples)"
    with pytest.raises(InputError, match="kernel='precomputed' cannot be evaluated"):
        part.bases_for(GDM(2, kernel="precomputed"), [0])
    model = GDM(1).fit(
        part.bases_for(GDM(1), [0, 1]), [s.labels for s in part.aligning]
    )
    by_bases = part.map_scored(model.maps_, from_bases=True)
    by_samples = part.map_scored(model.maps_, from_bases=False)
    for a, b, s, m in zip(by_bases, by_samples, part.scored, model.maps_, strict=True):
        np.testing.assert_allclose(a, m.transform(s.samples), atol=1e-10)
        np.testing.assert_allclose(b, m.transform(s.samples), atol=1e-12)


@pytest.mark.parametrize("voxels", [1, 15, 16, 40])
def test_copies_are_found_by_some_of_their_voxels(rng, voxels):
    X = [rng.normal(size=(6, voxels)) for _ in range(3)]
    labels = [list("ababab")] * 3
    split_study(X, labels)
    X[2] = X[0].copy()
    with pytest.raises(InputError, match="of subject '0' and subject '2' are the same"):
        split_study(X, labels)
    X[2][0, 0] += 1e-9
    split_study(X, labels)
