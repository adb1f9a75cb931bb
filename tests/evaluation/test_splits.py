"""Halves, masks, separate aligning samples, and the folds of the paper."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from brainweave import (
    GDM,
    SRM,
    NoAlignment,
    Study,
    Subject,
    between_subject_classification,
    split_study,
)
from brainweave._core.exceptions import InputError
from brainweave.evaluation.splits import Split, subject_folds
from brainweave.report import write_report
from brainweave.study.provenance import describe_record
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
        GDM(2, graph="time"), split_study(X, y, align=movie), leave_out=2
    )
    assert len(result.scores) == 15
    assert {f["half"] for f in result.folds} == {0, 1, 2}
    assert [f["n_test"] for f in result.folds] == [2 * 12] * 15


def test_folds_leave_out_every_subject_once():
    with pytest.raises(ValueError, match="leave_out of the evaluation must be"):
        subject_folds(5, 0)
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
    assert len(split.splits) == 2
    for part in split.splits:
        for a, s in zip(rows(part.aligning), rows(part.scored), strict=True):
            assert not a & s
            assert a | s == set(range(21))
    first, second = split.splits
    assert rows(first.aligning) == rows(second.scored)


def test_categories_are_split_equally(rng):
    labels = rng.permutation(np.repeat(["a", "b", "c"], [8, 6, 4]))
    X = [rng.normal(size=(18, 5)) for _ in range(2)]
    for part in split_study(X, [labels, labels]).splits:
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
    first = split_study(study, halves="run").splits[0]
    assert_array_equal(np.unique(first.aligning[0].runs), [1, 2])
    assert_array_equal(np.unique(first.scored[0].runs), [3, 4])


def test_matching_makes_rows_correspond(rng):
    X, y = study_lists(rng, n_subjects=3, n_samples=25)
    split = split_study(X, y, match="truncate")
    for part in split.splits:
        first, *others = [s.labels for s in part.aligning]
        for labels in others:
            assert_array_equal(labels, first)
    averaged = split_study(X, y, match="average").splits[0].aligning
    assert [s.n_samples for s in averaged] == [3, 3, 3]


def test_matched_samples_tell_how_and_what_was_done_before(rng):
    X, y = study_lists(rng, n_subjects=2)
    movie = as_named_study([x[:9] ** 3 for x in X], [list("aab") * 3, list("abb") * 3])
    aligned = split_study(as_named_study(X, y), align=[movie.zscore("all")])
    before = aligned.splits[0].aligning.record
    split = split_study(
        as_named_study(X, y), align=[movie.zscore("all")], match="truncate"
    )
    record = dict(split.splits[0].aligning.record)
    told = {"had": 18, "used": 12, "dropped": {"s0": 3, "s1": 3}}
    assert record.pop("match") == {"how": "truncate", **told}
    assert record == before
    assert (
        dict(describe_record(record))["scale"]
        == "z-scores of each voxel over all samples"
    )


def test_labels_given_by_id_go_before_those_of_the_study(rng):
    X, y = study_lists(rng, n_subjects=2)
    unknown = as_named_study(X, [None] * 2)
    masks = [np.arange(24) < 12] * 2
    known = dict(zip(unknown.ids, y, strict=True))
    assert split_study(unknown, known, halves=masks).categories == [0, 1, 2]
    assert split_study(unknown, halves=masks).categories == []


def test_intersecting_goes_by_the_stimuli_if_all_subjects_have_them(rng):
    labels, stimuli = list("aabb") * 2, [list("pqrstuvw"), list("wvutsrqp")]
    X = [numbered(8, None)[0] + [0, i] for i in range(2)]

    def aligning(known):
        study = Study(
            Subject(str(i), x, labels=labels, stimuli=s)
            for i, (x, s) in enumerate(zip(X, known, strict=True))
        )
        halves = [np.arange(8) < 5, np.arange(8) > 2]
        return split_study(study, halves=halves, match="intersect").splits[0].aligning

    by_stimulus = aligning(stimuli)
    assert [s.stimuli.tolist() for s in by_stimulus] == [list("pqrst")] * 2
    assert by_stimulus[1].samples[:, 0].tolist() == [7, 6, 5, 4, 3]
    by_label = aligning([stimuli[0], None])
    assert [s.labels.tolist() for s in by_label] == [list("aabb")] * 2


def test_a_split_knows_how_it_was_made(rng):
    X, y = study_lists(rng, n_subjects=3)
    split = split_study(as_named_study(X, y), match="truncate")
    assert split.design == {"match": "truncate", "halves": "category"}
    assert split.shape == (2, 3)
    told = split.about()
    assert told["subjects"] == ["s0", "s1", "s2"]
    assert told["n_scored"] == [[12, 12, 12]] * 2
    masks = split_study(X, y, halves=[np.arange(24) % 2 > 0] * 3)
    assert masks.design == {"match": None, "halves": "masks"}


def test_samples_that_aligned_are_refused(rng):
    X, y = study_lists(rng, n_subjects=3)
    part = Subject("s1", X[1], labels=y[1], aligned=np.arange(24) < 5)
    study = Study([Subject("s0", X[0], labels=y[0]), part])
    with pytest.raises(ValueError, match=r"5 of 24 samples of subject 's1' took part"):
        split_study(study)
    kept = part.select(~part.aligned)
    split_study(Study([Subject("s0", X[0], labels=y[0]), kept]))


@pytest.mark.parametrize("length", [2, 6])  # of a run
def test_a_run_or_a_subject_that_is_there_twice_is_refused(rng, length):
    X, y = study_lists(rng)
    runs = [np.arange(24) // length] * 4
    split_study(as_named_study(X, y, runs))
    X[1][2 * length : 3 * length] = X[1][:length]
    with pytest.raises(
        InputError,
        match=r"run 0 of subject 's1' and run 2 of subject 's1' are the same",
    ):
        split_study(as_named_study(X, y, runs))
    X[3] = X[0].copy()
    with pytest.raises(InputError, match="subject 's0' and subject 's3' are the same"):
        split_study(as_named_study(X, y))


def test_a_run_that_never_changes_is_no_copy_of_another(rng):
    X, y = study_lists(rng)
    for x in X:
        x[:12] = 1.0  # two runs of nothing
        x[18:20] = 2.0  # two runs of one and the same sample
    runs = [np.repeat([0, 1, 2, 3, 4, 5], [6, 6, 6, 1, 1, 4])] * 4
    assert split_study(as_named_study(X, y, runs)).n_subjects == 4


def test_a_subject_without_samples_is_named(rng):
    X, y = study_lists(rng)
    with pytest.raises(ValueError, match="Subject 's2' has its 0 samples all in one"):
        split_study(as_named_study([*X[:2], X[2][:0]], [*y[:2], y[2][:0]]))


def test_samples_that_are_scored_may_not_align(rng):
    X, y = study_lists(rng, n_subjects=3)
    movie = [rng.normal(size=(10, x.shape[1])) for x in X]
    for part in (X[1], movie[1]):
        part[:2] = 0  # empty samples are alike and tell nothing
    split = split_study(X, y, align=[movie])
    assert split.design["halves"] == "align"
    movie[1][7] = X[1][5]
    with pytest.raises(ValueError, match=r"1 of 24 .* '1' took part in the alignment"):
        between_subject_classification(NoAlignment(), split_study(X, y, align=[movie]))


def test_aligning_samples_are_of_the_same_subjects(rng):
    X, y = study_lists(rng, n_subjects=2, voxels=30)
    X = [x[:, :30] for x in X]
    study = as_named_study(X, y)
    movie = [Subject(f"s{i}", rng.normal(size=(10, 30))) for i in (1, 0)]
    with pytest.raises(ValueError, match=r"\('s1', 30\) where that has \('s0', 30\)"):
        split_study(study, align=[Study(movie)])
    named = split_study(study, align=[Study(movie[::-1], "movie")])
    assert named.splits[0].aligning.name == "movie"
    with pytest.raises(TypeError, match="align takes a list"):
        split_study(study, align=[])


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
    between_subject_classification(GDM(1), split_study(study), protocol="joint")
    assert [s.reads for s in sources] == [1, 1]


def test_what_was_standardised_together_and_then_divided_is_named(rng, tmp_path):
    study = Study(
        Subject(
            str(i),
            rng.normal(size=(24, 9)),
            labels=list("abc") * 8,
            runs=np.arange(24) // 8,
        )
        for i in range(3)
    )
    half = np.arange(24) < 16  # two of three runs
    read = Study(study.subjects, record={"settings": {"standardize": "psc"}})
    for scaled, how, named in (
        (study, {}, None),
        (study.zscore(), {}, "run"),
        (study.zscore(), {"halves": "run"}, None),
        (study.zscore(), {"halves": [half] * 3}, None),
        (study.zscore(), {"halves": [~half, half, np.roll(half, 1)]}, "run"),
        (study.zscore(), {"align": [study.map(cubed).zscore()]}, None),
        (study.zscore("all"), {"halves": "run"}, "all"),
        (study.zscore("all").save(tmp_path / "study"), {}, "all"),
        (read, {}, "run"),
    ):
        split = split_study(scaled, **how)
        assert split.design.get("standardised_together") == named
    assert dict(describe_record(study.zscore().record))["scale"] == (
        "z-scores of each voxel and run"
    )
    together = study.zscore("all")
    result = between_subject_classification(GDM(2), together, n_jobs=1)
    assert result.design["standardised_together"] == "all"
    page = write_report(tmp_path / "r.html", study=together, results=result)
    told = "standardised over all samples, samples that aligned together with"
    assert told in page.read_text(encoding="utf-8")


def cubed(subject):
    return subject._replace(samples=subject.data() ** 3)


def test_errors_say_what_is_wrong_and_what_to_do(rng):
    X, y = study_lists(rng, n_subjects=3)
    with pytest.raises(ValueError, match="halves must be 'category', 'run'"):
        split_study(X, y, halves="thirds")
    for n in (1, 2):
        with pytest.raises(ValueError, match=f"halves has {n} masks for 3 subjects"):
            split_study(X, y, halves=[np.ones(24, bool)] * n)
    with pytest.raises(ValueError, match="mask of subject '0' must hold 24 booleans"):
        split_study(X, y, halves=[np.ones(24)] * 3)
    with pytest.raises(ValueError, match=r"24 booleans, .*; got bool of shape \(23,\)"):
        split_study(X, y, halves=[np.arange(23) > 9] * 3)
    with pytest.raises(
        ValueError, match=r"24 booleans, True .* shape \(24,\), 24 of them True"
    ):
        split_study(X, y, halves=[np.ones(24, bool)] * 3)
    with pytest.raises(ValueError, match="block and border divide time"):
        split_study(X, halves="run", block=4)
    with pytest.raises(ValueError, match="no runs to split by"):
        split_study(X, y, halves="run")
    with pytest.raises(ValueError, match="y has 2 entries for 3 subjects"):
        split_study(X, y[:2])
    with pytest.raises(TypeError, match="align takes a list with one entry per part"):
        split_study(X, y, align="movie")
    with pytest.raises(ValueError, match=r"None where that has \(2, 42\)"):
        split_study(X, y, align=[X[:2]])
    with pytest.raises(ValueError, match=r"\(0, 41\) where that has \(0, 40\)"):
        split_study(X, y, align=[[X[1], X[0], X[2]]])
    with pytest.raises(ValueError, match="leave_out=3 leaves no subject"):
        between_subject_classification(GDM(2), X, y, leave_out=3)
    for given in ({"y": y}, {"halves": "run"}, {"block": 4}, {"match": "truncate"}):
        with pytest.raises(ValueError, match="split already"):
            split_study(split_study(X, y), **given)
    with pytest.raises(
        ValueError, match="needs the categories of all aligning samples"
    ):
        split_study(X, match="truncate")


@pytest.mark.parametrize("what", ["labels", "stimuli"])
def test_rows_that_show_something_else_are_refused_by_who_joins_them(rng, what):
    known = [list("aabb"), list("abab")]
    X = [rng.normal(size=(4, 6)) for _ in known]
    study = Study(
        Subject(f"s{i}", x, **{what: y})
        for i, (x, y) in enumerate(zip(X, known, strict=True))
    )
    shown = "categories" if what == "labels" else "stimuli"
    with pytest.raises(InputError, match=f"'s1' show other {shown} than those of 's0'"):
        Split(study, study).check_locked(SRM(2))
    Split(study, study).check_locked(GDM(2))
    same = study.map(lambda s: s._replace(**{what: known[0]}))
    Split(same, same).check_locked(SRM(2))
    half = Study([same[0], same[1]._replace(labels=None, stimuli=None)])
    Split(half, half).check_locked(SRM(2))  # nothing that both have


def test_bases_that_are_there_are_used_again(rng, caplog):
    X, y = study_lists(rng, n_subjects=3)
    part = split_study(as_named_study(X, y)).splits[0]
    with caplog.at_level("DEBUG", logger="brainweave"):
        first = part.bases_for(GDM(2), [0, 2])
        again = part.bases_for(GDM(2), [0, 1, 2])
    assert [first[0], first[1]] == [again[0], again[2]]
    told = [record.getMessage() for record in caplog.records]
    said = [text for text in told if "bases are made" in text]
    assert said == [
        "GDM: 2 bases are made, 0 used again",
        "GDM: 1 bases are made, 2 used again",
    ]


@pytest.mark.parametrize(
    "mask",
    [np.arange(24) % 2, np.arange(23) % 2 > 0, np.ones(24, bool), np.zeros(24, bool)],
)
def test_masks_of_halves_are_booleans_of_both_kinds(rng, mask):
    X, y = study_lists(rng, n_subjects=3)
    good = np.arange(24) % 2 > 0
    split_study(as_named_study(X, y), halves=[good] * 3)
    with pytest.raises(InputError, match="The mask of subject 's1' must hold 24 bool"):
        split_study(as_named_study(X, y), halves=[good, mask, good])


def test_a_kernel_of_samples_reads_no_products(rng):
    X, y = study_lists(rng, n_subjects=3)
    part = split_study(as_named_study(X, y)).splits[0]
    part.prepare(GDM(2, kernel=lambda a, b: a @ b.T))
    assert not part._products
    part.prepare(GDM(2))
    assert len(part._products) == 3
    part.clear()
    assert [part._products, part._bases, part._kernels] == [{}, {}, {}]
