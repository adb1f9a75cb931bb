"""Matching samples by label, and dropping them: nothing goes unsaid."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from brainweave import SRM, drop_samples, match_samples

LABELS = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=3, max_size=25)


def rows(n, start=0):
    """Give samples whose single voxel tells where they come from."""
    return np.arange(start, start + n, dtype=float)[:, None]


def test_truncate_orders_by_category_and_keeps_the_first():
    y = [list("abab"), list("bbbaa")]
    matched = match_samples([rows(4), rows(5, 100)], y)
    assert_array_equal(matched.X[0].ravel(), [0, 2, 1, 3])
    assert_array_equal(matched.X[1].ravel(), [103, 104, 100, 101])
    assert [list(v) for v in matched.y] == [list("aabb")] * 2
    assert_array_equal(matched.kept[1], [3, 4, 0, 1])
    assert matched.summary["had"].unstack().to_numpy().tolist() == [[2, 2], [2, 3]]
    assert matched.summary["dropped"].unstack().to_numpy().tolist() == [[0, 0], [0, 1]]


def test_average_gives_one_sample_per_common_category():
    y = [["a", "b", "a", "c"], ["b", "a", "b", "b"]]
    X, new_y, kept, summary = match_samples([rows(4), rows(4)], y, how="average")
    assert_allclose(X[0].ravel(), [1, 1])
    assert_allclose(X[1].ravel(), [1, (0 + 2 + 3) / 3])
    assert [list(v) for v in new_y] == [["a", "b"]] * 2
    assert_array_equal(kept[0], [0, 1, 2])
    assert summary["dropped"].sum() == 1
    assert summary.loc[(0, "c")].tolist() == [1, 0, 1]


def test_intersect_keeps_common_stimuli_in_the_order_of_the_first():
    y = [[7, 3, 9, 3, 1], [3, 1, 7, 8, 3, 3]]
    matched = match_samples([rows(5), rows(6)], y, how="intersect")
    assert_array_equal(matched.y[0], [7, 3, 3, 1])
    assert_array_equal(matched.y[1], [7, 3, 3, 1])
    assert_array_equal(matched.kept[0], [0, 1, 3, 4])
    assert_array_equal(matched.kept[1], [2, 0, 4, 1])
    lost = matched.summary.query("dropped > 0").index
    assert sorted(lost) == [(0, "9"), (1, "3"), (1, "8")]


def test_unlabelled_samples_are_dropped_and_counted():
    y = [np.array([1.0, np.nan, 2.0]), np.array([2.0, 1.0, np.nan])]
    matched = match_samples([rows(3), rows(3)], y)
    lost = matched.summary.query("dropped > 0")["dropped"]
    assert lost.to_dict() == {(0, "(unlabelled)"): 1, (1, "(unlabelled)"): 1}
    assert_array_equal(matched.X[1].ravel(), [1, 0])


@settings(max_examples=30, deadline=None)
@given(
    y=st.lists(LABELS, min_size=2, max_size=4),
    how=st.sampled_from(["truncate", "average", "intersect"]),
)
def test_matched_rows_carry_the_same_labels_and_all_samples_are_accounted_for(y, how):
    X = [rows(len(known)) for known in y]
    common = set.intersection(*(set(known) for known in y)) - {None}
    if not common:
        with pytest.raises(ValueError, match="No label occurs in all subjects"):
            match_samples(X, y, how)
        return
    matched = match_samples(X, y, how)
    for labels, x in zip(matched.y, matched.X, strict=True):
        assert list(labels) == list(matched.y[0])
        assert len(x) == len(labels)
    assert matched.summary.had.sum() == sum(map(len, y))
    assert matched.summary.used.sum() == sum(map(len, matched.kept))
    if how != "average":
        for x, kept, labels, known in zip(
            matched.X, matched.kept, matched.y, y, strict=True
        ):
            assert_array_equal(x.ravel(), kept)
            assert list(labels) == [known[i] for i in kept]


def test_matching_makes_time_locked_methods_possible():
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(3, 5))
    y = [rng.permutation([0, 1, 2] * 8), rng.permutation([0, 1, 2] * 6)]
    X = [centroids[c] @ rng.normal(size=(5, 40)) for c in y]
    X = [x + 0.1 * rng.normal(size=x.shape) for x in X]
    with pytest.raises(ValueError, match="match_samples"):
        SRM(2, random_state=0).fit(X, y)
    matched = match_samples(X, y)
    a, b = SRM(2, random_state=0).fit_transform(matched.X, matched.y)
    assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.95


def test_dtype_stays():
    X = [rows(4).astype(np.float32), rows(4).astype(np.float32)]
    y = [list("abab")] * 2
    for how in ("truncate", "average", "intersect"):
        assert match_samples(X, y, how).X[0].dtype == np.float32
    whole = [x.astype(int) for x in X]
    assert match_samples(whole, y, "average").X[0].dtype == np.float64


def test_inputs_are_unchanged():
    X, y = [rows(4), rows(4)], [np.array(list("abab")), np.array(list("bbaa"))]
    before = [x.copy() for x in X], [known.copy() for known in y]
    match_samples(X, y, "average").X[0][:] = 9
    match_samples(X, y).X[0][:] = 9
    drop_samples(X, y, 0.5, 0).X[0][:] = 9
    for now, then in zip(X + y, before[0] + before[1], strict=True):
        assert_array_equal(now, then)


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.6])
def test_drop_removes_the_share_from_every_subject(fraction):
    X, y = [rows(20), rows(40)], [list("ab") * 10, list("ab") * 20]
    rest = drop_samples(X, y, fraction, random_state=3)
    for x, known, kept, n in zip(rest.X, rest.y, rest.kept, (20, 40), strict=True):
        assert len(x) == round(n * (1 - fraction))
        assert_array_equal(x.ravel(), kept)
        assert (np.diff(kept) > 0).all()
        assert list(known) == ["ab"[i % 2] for i in kept]
    assert rest.summary.dropped.sum() == 60 - sum(map(len, rest.X))
    again = drop_samples(X, y, fraction, random_state=3)
    assert all(np.array_equal(a, b) for a, b in zip(rest.kept, again.kept, strict=True))


def test_subjects_lose_different_samples():
    rest = drop_samples([rows(30), rows(30)], fraction=0.5, random_state=0)
    assert rest.y is None
    assert not np.array_equal(rest.kept[0], rest.kept[1])
    alone = drop_samples([rows(30)], fraction=0.5, random_state=0)
    assert np.array_equal(alone.kept[0], rest.kept[0])


class FakeSubject:
    def __init__(self, x, labels):
        self.x, self.labels = x, labels
        self.n_samples, self.n_voxels = x.shape

    def data(self):
        return self.x


def test_subjects_bring_their_own_labels():
    study = [FakeSubject(rows(4), list("abab")), FakeSubject(rows(4), list("bbaa"))]
    assert_array_equal(match_samples(study).kept[1], [2, 3, 0, 1])


def test_labels_are_taken_from_subjects_only_if_all_have_them():
    study = [FakeSubject(rows(4), list("abab")), FakeSubject(rows(4), None)]
    with pytest.raises(ValueError, match="needs the labels"):
        match_samples(study)
    with pytest.raises(ValueError, match="needs the labels"):
        match_samples([study[0], rows(4)])
    assert drop_samples(study, fraction=0.5, random_state=0).y is None


@pytest.mark.parametrize(
    ("labels", "kind"),
    [("ab", "U"), ((1, 2), "i"), ((1.5, 2.5), "f"), ((True, False), "b")],
)
def test_labels_of_one_kind_come_back_as_such(labels, kind):
    y = [list(labels)] * 2
    assert match_samples([rows(2), rows(2)], y).y[0].dtype.kind == kind


@pytest.mark.parametrize("labels", [["a", 1], [("a", 1), ("b", 2)]])
def test_other_labels_come_back_unchanged(labels):
    matched = match_samples([rows(2), rows(2)], [labels, labels], "intersect")
    assert matched.y[0].tolist() == labels


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda X, y: match_samples(X, y, "sort"), ValueError, "'truncate', 'average'"),
        (lambda X, y: match_samples(X), ValueError, "needs the labels"),
        (lambda X, y: match_samples(X, y[:1]), ValueError, "1 entries for 2 subjects"),
        (lambda X, y: match_samples(X, [y[0], y[1][:-1]]), ValueError, r"y\[1\] has 3"),
        (lambda X, y: match_samples(X[0], y), TypeError, "list with one array"),
        (lambda X, y: match_samples([[1], [2]], [[1], [2]]), ValueError, "2-D"),
        (lambda X, y: drop_samples(X, y, 1.0), ValueError, r"in \[0, 1\)"),
        (lambda X, y: drop_samples(X, y, "0.5"), TypeError, "fraction"),
        (lambda X, y: drop_samples(X, y, 0.9), ValueError, r"X\[0\] has 4 samples"),
    ],
)
def test_errors_name_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call([rows(4), rows(4)], [list("abab"), list("bbaa")])
