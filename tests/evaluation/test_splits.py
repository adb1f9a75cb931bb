"""Halves, masks, separate aligning samples, and the folds of the paper."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from brainweave import GDM, Study, Subject, between_subject_classification, split_study
from brainweave.evaluation.splits import subject_folds
from evaluation_studies import as_named_study, study_lists


def numbered(n_samples, labels, runs=None):
    """A subject whose samples carry their own row number."""
    samples = np.column_stack([np.arange(n_samples), np.zeros(n_samples)])
    return samples.astype(float), labels, runs


def rows(study):
    return [set(np.asarray(s.samples)[:, 0].astype(int)) for s in study]


def test_sixteen_subjects_leaving_out_four_make_eight_folds(rng):
    X, y = study_lists(rng, n_subjects=16, n_samples=12, voxels=20)
    result = between_subject_classification(GDM(2), X, y, leave_out=4)
    assert len(result.scores) == 8
    assert [f["n_test"] for f in result.folds] == [4 * 6] * 8
    assert result.folds[1]["test_subjects"] == ["4", "5", "6", "7"]


def test_three_thirds_of_a_movie_and_ten_subjects_make_fifteen_folds(rng):
    X, y = study_lists(rng, n_subjects=10, n_samples=12, voxels=20)
    movie = [[rng.normal(size=(8, 20 + i)) for i in range(10)] for _ in range(3)]
    result = between_subject_classification(
        GDM(2, graph="time"), X, y, align=movie, leave_out=2
    )
    assert len(result.scores) == 15
    assert {f["half"] for f in result.folds} == {0, 1, 2}
    assert [f["n_test"] for f in result.folds] == [2 * 12] * 15


def test_folds_leave_out_every_subject_once():
    folds = subject_folds(14, 4)
    assert [len(f) for f in folds] == [4, 4, 4, 2]
    assert sorted(i for fold in folds for i in fold) == list(range(14))


@pytest.mark.parametrize("halves", ["category", "run", "masks"])
def test_no_sample_aligns_and_is_scored(rng, halves):
    labels = [rng.permutation(np.arange(21) % 3) for _ in range(3)]
    runs = np.repeat([1, 2, 3], 7)
    study = Study(
        Subject(f"s{i}", numbered(21, None)[0] + [0, i], labels=known, runs=runs)
        for i, known in enumerate(labels)
    )
    given = [rng.random(21) < 0.5 for _ in range(3)] if halves == "masks" else halves
    split = split_study(study, halves=given)
    assert len(split.parts) == 2
    for part in split.parts:
        for a, s in zip(rows(part.aligning), rows(part.scored), strict=True):
            assert not a & s
            assert a | s == set(range(21))
    first, second = split.parts
    assert rows(first.aligning) == rows(second.scored)


def test_categories_are_split_equally(rng):
    labels = rng.permutation(np.repeat(["a", "b", "c"], [8, 6, 4]))
    X = [rng.normal(size=(18, 5)) for _ in range(2)]
    for part in split_study(X, [labels, labels]).parts:
        found = dict(
            zip(*np.unique(part.scored[0].labels, return_counts=True), strict=True)
        )
        assert found == {"a": 4, "b": 3, "c": 2}


def test_runs_are_kept_whole(rng):
    study = as_named_study(
        [rng.normal(size=(12, 5)) for _ in range(2)],
        [list("abc") * 4] * 2,
        [np.repeat([1, 2, 3, 4], 3)] * 2,
    )
    first = split_study(study, halves="run").parts[0]
    assert_array_equal(np.unique(first.aligning[0].runs), [1, 2])
    assert_array_equal(np.unique(first.scored[0].runs), [3, 4])


def test_matching_makes_rows_correspond(rng):
    X, y = study_lists(rng, n_subjects=3, n_samples=25)
    split = split_study(X, y, match="truncate")
    for part in split.parts:
        first, *others = [s.labels for s in part.aligning]
        for labels in others:
            assert_array_equal(labels, first)
    averaged = split_study(X, y, match="average").parts[0].aligning
    assert [s.n_samples for s in averaged] == [3, 3, 3]


def test_lazy_subjects_are_read_once(rng):
    class Source:
        shape, dtype, reads = (12, 6), np.dtype(float), 0

        def __init__(self, seed):
            self.seed = seed

        def read(self):
            self.reads += 1
            return np.random.default_rng(self.seed).normal(size=self.shape)

    sources = [Source(0), Source(1)]
    study = Study(
        Subject(str(i), s, labels=list("ab") * 6) for i, s in enumerate(sources)
    )
    between_subject_classification(GDM(1), split_study(study))
    assert [s.reads for s in sources] == [1, 1]


def test_errors_say_what_is_wrong_and_what_to_do(rng):
    X, y = study_lists(rng, n_subjects=3)
    with pytest.raises(ValueError, match="halves must be 'category', 'run'"):
        split_study(X, y, halves="thirds")
    with pytest.raises(ValueError, match="halves has 2 masks for 3 subjects"):
        split_study(X, y, halves=[np.ones(24, bool)] * 2)
    with pytest.raises(ValueError, match="mask of subject '0' must hold 24 booleans"):
        split_study(X, y, halves=[np.ones(24)] * 3)
    with pytest.raises(ValueError, match="all its 24 samples into one half"):
        split_study(X, y, halves=[np.ones(24, bool)] * 3)
    with pytest.raises(ValueError, match="no runs to split by"):
        split_study(X, y, halves="run")
    with pytest.raises(ValueError, match="y has 2 entries for 3 subjects"):
        split_study(X, y[:2])
    with pytest.raises(TypeError, match="align takes a list with one entry per part"):
        split_study(X, y, align="movie")
    with pytest.raises(ValueError, match=r"align\[0\] has 2 subjects; the study has 3"):
        split_study(X, y, align=[X[:2]])
    with pytest.raises(ValueError, match="with 41 voxels where the study"):
        split_study(X, y, align=[[X[1], X[0], X[2]]])
    with pytest.raises(ValueError, match="leave_out=3 leaves no subject"):
        between_subject_classification(GDM(2), X, y, leave_out=3)
    with pytest.raises(ValueError, match="split already"):
        split_study(split_study(X, y), y)
    with pytest.raises(
        ValueError, match="needs the categories of all aligning samples"
    ):
        split_study(X, match="truncate")
