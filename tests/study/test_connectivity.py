"""Connectivity as samples: what rows are, and that they align who saw nothing alike."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from brainweave import (
    GDM,
    DetSRM,
    InputError,
    NoAlignment,
    Study,
    Subject,
    split_study,
)
from brainweave.study.connectivity import connectivity_samples
from evaluation_studies import score_matching

PARCELS = np.repeat(np.arange(1, 17), 12)
V, K = PARCELS.size, 6


def fine_brains(seed, films, n_samples=150, signal=1.0):
    """Return people with one tuning of parcels, and voxels in an order of their own.

    Voxels keep to their parcel, but where in it, anatomy does not tell.
    """
    rng = np.random.default_rng([seed, 5])
    names = sorted({film for own in films for film in own})
    courses = {film: rng.normal(size=(n_samples, K)) for film in names}
    coarse = np.repeat(rng.normal(size=(K, 16)), 12, axis=1)
    tuning = (coarse / 2 + rng.normal(size=(K, V))) / np.sqrt(K)
    people = []
    for i, own in enumerate(films):
        order = np.concatenate([p + rng.permutation(12) for p in range(0, V, 12)])
        seen = np.concatenate([courses[film] for film in own])
        X = signal * seen @ tuning[:, order] + rng.normal(size=(len(seen), V))
        ids = [f"{film}:{t}" for film in own for t in range(n_samples)]
        runs = np.repeat(own, n_samples)
        people.append(Subject(f"{i}", X, stimuli=ids, runs=runs))
    return Study(people)


def only(study, *films):
    return Study([s.select(np.isin(s.runs, films)) for s in study])


GROUPS = [0, 0, 0, 1, 1, 1]
SEEN = [["a", "c"]] * 3 + [["b", "c"]] * 3


def matched(aligner, rows, test):
    """Match the film that nobody aligned with, between groups alone."""
    split = split_study(test, align=[rows])
    how = {"groups": GROUPS, "protocol": "joint"}
    return score_matching(aligner, split, **how).mean


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_groups_that_share_no_film_are_aligned_by_connectivity(seed):
    study = fine_brains(seed, SEEN, signal=0.25)
    test = only(study, "c")
    rows = connectivity_samples(only(study, "a", "b"), PARCELS)
    before = matched(NoAlignment(), only(study, "a", "b"), test)
    srm = matched(DetSRM(K, random_state=0), rows, test)
    gdm = matched(GDM(K, graph="time", place=None), rows, test)
    assert before < 0.3
    assert srm > before + 0.4
    assert gdm > before + 0.4


@pytest.mark.parametrize("seed", [0, 1])
def test_a_second_step_with_targets_in_the_aligned_space(seed):
    study = fine_brains(seed, SEEN, signal=0.25)
    seen, test = only(study, "a", "b"), only(study, "c")
    rows = connectivity_samples(seen, PARCELS)
    first = DetSRM(K, random_state=0).fit(rows)
    refined = connectivity_samples(seen, first.transform(seen))
    both = Study(
        [
            a._replace(
                samples=np.concatenate([a.data(), b.data()]),
                stimuli=[*a.stimuli, *b.stimuli],
                runs=None,
            )
            for a, b in zip(rows, refined, strict=True)
        ]
    )
    before, after = (matched(DetSRM(K, random_state=0), r, test) for r in (rows, both))
    assert after > before + 0.05


def test_rows_are_correlations_with_targets_without_the_voxel(rng):
    study = fine_brains(0, [["a"], ["b"]], n_samples=40)
    rows = connectivity_samples(study, PARCELS, weigh=False)
    X = study[1].data()
    X = (X - X.mean(0)) / X.std(0)
    expected = np.zeros((16, V))
    for t in range(16):
        for v in range(V):
            members = (t + 1 == PARCELS) & (np.arange(V) != v)
            expected[t, v] = np.corrcoef(X[:, members].mean(1), X[:, v])[0, 1]
    expected = np.arctanh(expected)
    assert_allclose(rows[1].data(), expected - expected.mean(0), atol=1e-5)
    assert rows[0].stimuli[0] == "connectivity 1"
    assert rows[0].runs.tolist() == ["connectivity"] * 16


def test_time_courses_can_be_targets(rng):
    study = fine_brains(0, [["a"], ["b"]], n_samples=40)
    courses = [rng.normal(size=(40, 3)) for _ in range(2)]
    rows = connectivity_samples(study, courses, weigh=False)
    X = study[0].data()
    expected = np.arctanh(
        [[np.corrcoef(c, x)[0, 1] for x in X.T] for c in courses[0].T]
    )
    assert_allclose(rows[0].data(), expected - expected.mean(0), atol=1e-5)


def test_rows_that_do_not_repeat_weigh_little():
    study = fine_brains(0, [["a"], ["b"], ["a"]], signal=2.0)
    people = []
    for s in study:  # the last parcels are noise alone
        X = s.data().copy()
        X[:, PARCELS > 12] = np.random.default_rng(int(s.id)).normal(
            size=(len(X), 4 * 12)
        )
        people.append(s._replace(samples=X))
    plain = connectivity_samples(Study(people), PARCELS, weigh=False)
    weighed = connectivity_samples(Study(people), PARCELS)
    ids = [f"connectivity {k}" for k in range(1, 17)]
    share = {
        id: np.linalg.norm(w) / np.linalg.norm(p)
        for id, w, p in (
            (id, weighed[0].data()[k], plain[0].data()[ids.index(id)])
            for k, id in enumerate(weighed[0].stimuli)
        )
    }
    sound = [share[id] for id in ids[:12]]
    noise = [share.get(id, 0.0) for id in ids[12:]]
    assert min(sound) > 0.6
    assert max(noise) < 0.5


def test_responses_and_connectivity_align_together():
    study = fine_brains(0, SEEN)
    rest, film = only(study, "a", "b"), only(study, "c")
    both = connectivity_samples(rest, PARCELS, responses=film)
    n = sum(np.asarray(both[0].runs) == "connectivity")
    assert both[0].n_samples == n + 150
    X = both[2].data()
    assert_allclose((X[:n] ** 2).sum(0), (X[n:] ** 2).sum(0), rtol=1e-4)
    assert both[0].stimuli[-1] == "c:149"
    some = connectivity_samples(rest, PARCELS, responses=Study(film.subjects[:4]))
    assert some[5].n_samples == n
    GDM(3, graph="time", shrinkage=0.5, place=None).fit(some)


def test_what_cannot_be_computed_is_refused(rng):
    study = fine_brains(0, [["a"], ["b"]], n_samples=40)
    with pytest.raises(InputError, match="must be the same in all"):
        connectivity_samples(study, [rng.normal(size=(40, k)) for k in (2, 3)])
    big = [Subject(str(i), rng.normal(size=(9, 2100 + i))) for i in range(2)]
    with pytest.raises(InputError, match="There are no targets"):
        connectivity_samples(Study(big), "auto")
    short = Study([s.select(np.arange(4)) for s in study])
    with pytest.raises(InputError, match="too few samples"):
        connectivity_samples(short, PARCELS)
    apart = [np.where(np.arange(V) < 90, 1, 0), np.where(np.arange(V) < 90, 0, 2)]
    with pytest.raises(InputError, match="No target has voxels in all"):
        connectivity_samples(study, apart)
    plain = Study([s._replace(stimuli=None) for s in study])
    with pytest.raises(InputError, match="responses need stimulus ids"):
        connectivity_samples(study, PARCELS, responses=plain)
