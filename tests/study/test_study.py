"""Subject and Study: what they keep, choose, split and refuse."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from brainweave._core.exceptions import InputError, StudyError
from brainweave.study import Study, Subject


class CountingSource:
    """Samples that count how often they are read."""

    def __init__(self, values):
        self.values = values
        self.shape = values.shape
        self.dtype = values.dtype
        self.reads = 0

    def read(self):
        self.reads += 1
        return self.values.copy()


def make_study(seed=0, counts=(8, 6), **options):
    rng = np.random.default_rng(seed)
    return Study(
        [
            Subject(
                f"s{i}",
                rng.normal(size=(n, 3 + i)),
                labels=np.resize(["a", "b"], n),
                runs=np.repeat([1, 2], n // 2),
                onsets=np.arange(n) * 2.0,
                stimuli=[f"pic{k}" for k in range(n)],
                **options,
            )
            for i, n in enumerate(counts)
        ],
        name="toy",
    )


def test_subjects_may_differ_in_samples_voxels_and_categories():
    study = make_study()
    summary = study.summary()
    assert summary.loc["s0", "samples"] == 8
    assert summary.loc["s1", "samples"] == 6
    assert summary["voxels"].tolist() == [3, 4]
    assert summary["runs"].tolist() == [2, 2]
    assert summary["categories"].tolist() == [2, 2]
    assert summary["stimuli"].tolist() == [8, 6]
    assert study.categories == ["a", "b"]
    assert study.run_ids == [1, 2]


def test_study_is_a_sequence_by_position_id_and_slice():
    study = make_study()
    assert len(study) == 2
    assert study["s1"] is study[1] is study[-1]
    assert [s.id for s in study] == ["s0", "s1"]
    assert isinstance(study[:1], Study)
    assert study[:1].name == "toy"
    assert "s0" in study
    assert "nobody" not in study


def test_missing_labels_of_every_spelling_become_none():
    subject = Subject("x", np.zeros((5, 2)), labels=["a", None, "", "n/a", np.nan])
    assert subject.labels.tolist() == ["a", None, None, None, None]
    assert subject.categories == ["a"]
    assert subject.n_unlabelled == 4


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([3.0, 1.0], [3, 1]),
        (np.array([2, 1], dtype=np.uint8), [2, 1]),
        (np.array(["b", "a"], dtype=object), ["b", "a"]),
        (np.array([1, np.nan]), [1, None]),
        ([True, False], [1, 0]),
        (np.array([b"x", b"y"]), ["x", "y"]),
    ],
)
def test_labels_come_in_one_form(given, kept):
    assert Subject("x", np.zeros((2, 2)), labels=given).labels.tolist() == kept


def test_all_missing_labels_mean_an_unlabelled_subject():
    assert Subject("x", np.zeros((2, 2)), labels=[None, "n/a"]).labels is None
    assert Subject("x", np.zeros((2, 2))).n_unlabelled == 2


@pytest.mark.parametrize("name", ["labels", "runs", "onsets", "stimuli"])
def test_wrong_length_names_subject_numbers_and_column(name):
    with pytest.raises(
        InputError, match=rf"'s9' has 4 samples, but {name} have .*\(3,\)"
    ):
        Subject("s9", np.zeros((4, 2)), **{name: [1, 2, 3]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": [1, "a"]}, "all strings or all whole numbers .* got 'a'"),
        ({"labels": [0.5, 1.0]}, "whole numbers .* got 0.5"),
        ({"runs": [1, None]}, "a run is missing"),
        ({"onsets": ["x", "y"]}, "onsets must be numbers"),
    ],
)
def test_annotations_that_cannot_be_used_are_refused(options, message):
    with pytest.raises(InputError, match=f"'s9'.*{message}"):
        Subject("s9", np.zeros((2, 2)), **options)


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        (np.zeros(3), InputError, r"2-D .* got shape \(3,\)"),
        (np.zeros((3, 0)), InputError, "no voxels"),
        (np.zeros((3, 2), complex), TypeError, "real numbers"),
        (np.array([["a"]]), TypeError, "real numbers"),
        ("file.npy", TypeError, "is the path"),
    ],
)
def test_samples_that_cannot_be_used_are_refused(samples, error, message):
    with pytest.raises(error, match=f"'s9'.*{message}"):
        Subject("s9", samples)


def test_space_of_another_size_is_refused():
    class Space:
        n_voxels = 5
        kind = "volume"

    with pytest.raises(InputError, match="has 2 voxels, but its space has 5"):
        Subject("s9", np.zeros((3, 2)), space=Space())


def test_study_refuses_duplicates_strangers_and_nothing():
    subject = Subject("a", np.zeros((2, 2)))
    with pytest.raises(StudyError, match="'a' occurs more than once"):
        Study([subject, subject])
    with pytest.raises(StudyError, match="at least one subject"):
        Study([])
    with pytest.raises(TypeError, match=r"subjects\[1\] is a ndarray"):
        Study([subject, np.zeros((2, 2))])
    with pytest.raises(StudyError, match=r"no subject 'b'.*it has 'a'"):
        Study([subject])["b"]
    with pytest.raises(IndexError, match="no subject 3"):
        Study([subject])[3]


@pytest.mark.parametrize("as_mask", [True, False])
def test_select_keeps_rows_and_their_annotations_together(as_mask):
    subject = make_study()[0]
    rows = np.array([1, 4, 6])
    chosen = subject.select(np.isin(np.arange(8), rows) if as_mask else rows)
    assert_array_equal(chosen.data(), subject.data()[rows])
    assert chosen.onsets.tolist() == [2.0, 8.0, 12.0]
    assert chosen.stimuli.tolist() == ["pic1", "pic4", "pic6"]
    assert chosen.runs.tolist() == [1, 2, 2]


def test_select_refuses_what_is_not_there():
    subject = make_study()[0]
    with pytest.raises(InputError, match="8 samples: index 8 is out of bounds"):
        subject.select([8])
    with pytest.raises(InputError, match="boolean index did not match"):
        subject.select([True, False, True])
    with pytest.raises(TypeError, match="mask of booleans or by 1-D indices"):
        subject.select([0.5])


def test_nothing_is_read_until_asked_for():
    source = CountingSource(np.random.default_rng(0).normal(size=(6, 4)))
    study = Study(
        [Subject("x", source, labels=list("aabbab"), runs=[1, 1, 1, 2, 2, 2])]
    )
    first, _ = study.zscore().split_halves()
    study.summary()
    repr(first["x"].samples)
    assert source.reads == 0
    assert first["x"].is_lazy
    assert first["x"].data().shape == (3, 4)
    assert source.reads == 1


def test_a_source_that_breaks_its_promise_is_named():
    source = CountingSource(np.zeros((6, 4)))
    subject = Subject("x", source)
    source.values = np.zeros((5, 4))
    with pytest.raises(StudyError, match=r"'x': the file gave \(5, 4\).*\(6, 4\)"):
        subject.data()


def test_memory_maps_stay_mapped_when_chosen_and_standardised(tmp_path):
    values = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", values)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    subject = Subject("x", mapped, runs=[1, 1, 1, 2, 2, 2])
    assert isinstance(subject.select([1, 2, 3]).samples, np.memmap)
    view = subject.select([0, 1, 4, 5]).zscore()
    assert not isinstance(view.samples, np.ndarray)
    assert view.samples.dtype == np.float32
    # columns can be streamed, and agree with the whole
    whole = view.data()
    assert_allclose(view.samples[:, 1:3], whole[:, 1:3], rtol=1e-6)
    assert_allclose(view.samples[1:, 2], whole[1:, 2], rtol=1e-6)
    assert_allclose(np.asarray(view.samples), whole, rtol=0)


def test_subset_by_id_and_position():
    study = make_study()
    assert study.subset(["s1"]).ids == ["s1"]
    assert study.subset([1, "s0"]).ids == ["s1", "s0"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=2, max_size=40))
def test_halves_by_category_are_a_balanced_partition_in_order(labels):
    n = len(labels)
    values = np.arange(n, dtype=float)[:, None]
    first, second = Study([Subject("x", values, labels=labels)]).split_halves()
    kept = [half[0].data()[:, 0].astype(int) for half in (first, second)]
    assert sorted(np.concatenate(kept)) == list(range(n))
    assert all(np.all(np.diff(rows) > 0) for rows in kept)
    assert abs(len(kept[0]) - len(kept[1])) <= 1
    for category in {"a", "b", "c", None}:
        counts = [sum(labels[row] == category for row in rows) for rows in kept]
        assert abs(counts[0] - counts[1]) <= 1
        # of each category the first half in order, as the GDM paper splits
        where = [[row for row in rows if labels[row] == category] for rows in kept]
        assert not where[0] or not where[1] or max(where[0]) < min(where[1])


def test_labels_in_another_order_give_the_same_categories_and_balanced_halves():
    study = Study(
        [
            Subject("x", np.arange(8.0).reshape(8, 1), labels=list("aabbccdd")),
            Subject("y", np.arange(8.0).reshape(8, 1), labels=list("dcbadcba")),
        ]
    )
    assert study["x"].categories == study["y"].categories == ["a", "b", "c", "d"]
    first, second = study.split_halves()
    assert first["x"].data()[:, 0].tolist() == [0, 2, 4, 6]
    assert first["y"].labels.tolist() == list("dcba")
    assert second["y"].labels.tolist() == list("dcba")


def test_halves_by_run_put_a_run_in_the_same_half_for_all():
    study = Study(
        [
            Subject("x", np.zeros((6, 2)), runs=[1, 1, 2, 2, 3, 3]),
            Subject("y", np.zeros((4, 2)), runs=[3, 3, 2, 2]),  # run 1 is missing
        ]
    )
    first, second = study.split_halves(by="run")
    assert first["x"].runs.tolist() == [1, 1, 2, 2]
    assert first["y"].runs.tolist() == [2, 2]
    assert second["y"].runs.tolist() == [3, 3]


def test_halves_that_would_be_empty_are_refused():
    study = make_study().map(lambda s: s.select(s.runs == 1))
    with pytest.raises(StudyError, match="'s0' has its 4 samples all in one half"):
        study.split_halves(by="run")
    with pytest.raises(StudyError, match="'x' has no runs to split by"):
        Study([Subject("x", np.zeros((4, 2)))]).split_halves(by="run")
    with pytest.raises(InputError, match="got 'category '"):
        study.split_halves(by="category ")


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    n=st.integers(4, 30),
    dtype=st.sampled_from([np.float32, np.float64, np.int16]),
)
def test_zscore_gives_mean_zero_and_deviation_one_in_each_run(seed, n, dtype):
    rng = np.random.default_rng(seed)
    values = (rng.normal(100, 20, size=(n, 3))).astype(dtype)
    values[:, 2] = 7  # a constant voxel
    before = values.copy()
    runs = np.array([1, 1, 2, 2, *rng.integers(1, 3, n - 4)])
    scored = Study([Subject("x", values, runs=runs)]).zscore()[0].data()
    assert_array_equal(values, before)
    assert scored.dtype == (np.float32 if dtype == np.float32 else np.float64)
    for run in (1, 2):
        block = scored[runs == run].astype(np.float64)
        assert_allclose(block.mean(axis=0), 0, atol=1e-5)
        spread = values[runs == run].std(axis=0) > 0
        assert_allclose(block.std(axis=0), spread.astype(float), atol=1e-5)


def test_zscore_says_what_it_cannot_do():
    study = Study([Subject("x", np.zeros((3, 2)), runs=[1, 1, 2])])
    with pytest.raises(StudyError, match="'x' has one sample in run 2,"):
        study.zscore()
    with pytest.raises(StudyError, match="'y' has no runs"):
        Study([Subject("y", np.zeros((3, 2)))]).zscore()
    with pytest.raises(InputError, match="got 'session'"):
        study.zscore(by="session")
    assert study.zscore(by="all")[0].data().shape == (3, 2)


def test_torch_tensors_are_chosen_from_on_their_device():
    torch = pytest.importorskip("torch")
    subject = Subject("x", torch.arange(6.0).reshape(3, 2), runs=[1, 1, 1])
    chosen = subject.select([2, 0])
    assert isinstance(chosen.samples, torch.Tensor)
    assert chosen.data().tolist() == [[4.0, 5.0], [0.0, 1.0]]
    with pytest.raises(TypeError, match="torch tensor"):
        subject.zscore()


def test_aligned_goes_with_its_samples():
    flags = [True, False, True, False]
    subject = Subject("01", np.arange(8.0).reshape(4, 2), aligned=flags, runs=[1] * 4)
    assert subject.select([3, 2]).aligned.tolist() == [False, True]
    assert subject.zscore().aligned.tolist() == flags
    assert Subject("01", np.zeros((4, 2))).aligned is None
    with pytest.raises(InputError, match="one per sample"):
        Subject("01", np.zeros((4, 2)), aligned=[True])
    with pytest.raises(TypeError, match="True or False per sample"):
        Subject("01", np.zeros((4, 2)), aligned=[1, 0, 1, 0])


def test_a_subject_of_a_study_is_an_id_or_a_position():
    labelled = Subject("b", np.eye(3), labels=list("xyx"))
    study = Study([Subject("a", np.eye(3)), labelled])
    with pytest.raises(TypeError, match="an id or a position, got float"):
        study[1.0]
    assert study[:1].ids == ["a"]
    assert study.index(study["b"]) == 1
    assert [s.id for s in reversed(study)] == ["b", "a"]
    assert repr(study["a"]) == "Subject('a': 3 samples x 3 voxels)"


@pytest.mark.parametrize(
    ("id", "options", "error", "match"),
    [
        ("", {}, InputError, "an id that is not empty"),
        ("a", {"labels": [1, 2, (3,)]}, InputError, r"got \(3,\)"),
        ("a", {"labels": [1, 2, 2**70]}, InputError, "numbers up to"),
        ("a", {"labels": [1.0, 2.0, 1e300]}, InputError, "numbers up to"),
    ],
)
def test_ids_and_labels_that_cannot_be_are_refused(id, options, error, match):
    with pytest.raises(error, match=match):
        Subject(id, np.eye(3), **options)


def test_masked_labels_are_missing_and_lists_are_samples():
    labels = np.ma.array(["a", "b", "c"], mask=[False, True, False])
    subject = Subject("a", [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], labels=labels)
    assert subject.labels.tolist() == ["a", None, "c"]
    assert subject.n_voxels == 2
    with pytest.raises(TypeError, match="samples must be a 2-D array"):
        Subject("a", object())


def test_moments_of_films_are_split():
    ids = ["a film@2.50", None, "x@y@0", "picture.png", "b@-1.25"]
    subject = Subject("01", np.zeros((5, 2)), stimuli=ids)
    assert subject.films.tolist() == ["a film", None, "x@y", None, "b"]
    np.testing.assert_array_equal(subject.times, [2.5, np.nan, 0, np.nan, -1.25])
    plain = Subject("01", np.zeros((2, 2)), stimuli=["picture.png", "cat@home"])
    assert plain.films is None
    assert plain.times is None
    assert Subject("01", np.zeros((2, 2)), stimuli=[1, 2]).films is None
    assert Subject("01", np.zeros((2, 2))).times is None
