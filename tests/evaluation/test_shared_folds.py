"""Folds share what depends on one subject alone, and nothing else."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from brainweave import GDM, split_study
from brainweave.evaluation.evaluate import align_folds
from brainweave.evaluation.measures import ScoringContext, choose_measure
from evaluation_studies import locked_lists, study_lists


def categories(rng, same=False):
    X, y = study_lists(rng, n_subjects=4, n_samples=96, voxels=60, noise=2.0)
    if same:  # then columns are places
        X = [x[:, :60] for x in X]
    return X, [np.repeat(own[:24], 4) for own in y]


def film(rng):
    return locked_lists(rng, n_subjects=4, n_samples=64, voxels=50, noise=2.0), None


def places(rng):
    """Columns that correspond: more of them than directions that are used."""
    shared = rng.normal(size=(6, 210))
    y = [np.repeat(rng.permutation(24) % 6, 2) for _ in range(6)]
    return [shared[own] + 3 * rng.normal(size=(48, 210)) for own in y], y


STUDIES = {
    "categories": (categories, GDM()),
    "categories, equal columns": (lambda rng: categories(rng, True), GDM()),
    "film": (film, GDM(graph="time")),
    "film, one constraint per subject": (
        film,
        GDM(3, graph="time", constraint="subject"),
    ),
    "reliable voxels": (categories, GDM(standardize="reliability")),
    "gaussian kernel": (categories, GDM(kernel="gaussian")),
    "places": (places, GDM(3)),
}


def folds_of(split, model, **which):
    batches = align_folds(model, split, n_jobs=1, **which)
    return [fold for batch in batches for fold in batch]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("study", STUDIES)
def test_folds_equal_fresh_fits_to_arrays(rng, study):
    make, model = STUDIES[study]
    split = split_study(*make(rng))
    measure, context = choose_measure(None, split.categories), ScoringContext(0, 0, 1)
    for fold in folds_of(split, model):
        half, (left_out,) = split.splits[fold.half], fold.test
        X, y = [s.data() for s in half.aligning], half.y_for(model)
        fresh = clone(model).fit(
            [X[i] for i in fold.train], y and [y[i] for i in fold.train]
        )
        for name in ("n_components_", "shrinkage_", "place_"):
            assert getattr(fresh, name) == getattr(fold.aligner, name)
        maps = dict(zip(fold.train, fresh.maps_, strict=True))
        maps[left_out] = fresh.fit_new_subject(X[left_out], y and y[left_out])
        found = [maps[i].transform(s.data()) for i, s in enumerate(half.scored)]
        for own, wanted in zip(fold.features, found, strict=True):
            assert_allclose(own, wanted, rtol=0, atol=1e-10 * np.abs(wanted).max())
        alone = replace(fold, features=found)
        scores = [
            next(measure.folds([one], split, context))[1]["score"]
            for one in (fold, alone)
        ]
        assert scores[0] == pytest.approx(scores[1], abs=1e-10)


def learned(fold):
    """Return all numbers of a template, and of the maps of those who made it."""
    model = fold.aligner
    maps = [*model.mixing_, *model.group_sums_, model.eigenvalues_, model.scale_]
    return [*maps, *([] if model.shared_ is None else [model.shared_])]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("study", STUDIES)
def test_a_template_does_not_know_who_is_held_out(rng, study):
    make, model = STUDIES[study]
    X, y = make(rng)
    last = len(X) - 1
    some = {"only": [(0, 0), (0, last), (1, last)]}
    before = folds_of(split_study(X, y), model, **some)
    other = [*X[:-1], rng.normal(size=X[-1].shape)]
    after = folds_of(split_study(other, y), model, **some)
    for one, two in zip(before, after, strict=True):
        if one.test != [last]:
            assert not np.array_equal(learned(one)[0], learned(two)[0])
            continue
        for a, b in zip(learned(one), learned(two), strict=True):
            assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("study", ["categories", "film"])
def test_a_fold_does_not_depend_on_those_before_it(rng, study):
    make, model = STUDIES[study]
    X, y = make(rng)
    every = folds_of(split_study(X, y), model)
    for fold in every[1::5]:
        (alone,) = folds_of(split_study(X, y), model, only=[(fold.half, fold.fold)])
        for a, b in zip(learned(fold), learned(alone), strict=True):
            assert_array_equal(a, b)


def bytes_of(known):
    if isinstance(known, dict):
        return sum(map(bytes_of, known.values()))
    if isinstance(known, tuple):
        return sum(map(bytes_of, known))
    return known.nbytes if isinstance(known, np.ndarray) else 0


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("study", ["categories, equal columns", "film"])
def test_what_folds_share_is_smaller_than_a_gram_matrix(rng, study):
    make, model = STUDIES[study]
    split = split_study(*make(rng))
    folds_of(split, model)
    for half in split.splits:
        bases = half.bases_for(model, list(range(half.n_subjects)))
        for basis in bases:
            assert 0 < bytes_of(basis.memory) < 8 * basis.n_samples**2
            sent = pickle.loads(pickle.dumps(basis))
            assert sent.memory is None
        half.clear()
    alone = model.fit([s.data() for s in half.aligning], half.y_for(model))
    assert all(basis.memory is None for basis in alone.bases_)
