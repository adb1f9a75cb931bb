"""The default GDM loses nothing, against the paper's or the other constraint.

``pytest -m thorough -s`` prints the rows of the tables in docs/gdm.md.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from brainweave import (
    GDM,
    PaperGDM,
    Study,
    Subject,
    between_subject_classification,
    time_segment_matching,
)
from evaluation_studies import score_matching
from reproduction.overlap import _simulated_parts
from reproduction.real import load_pieman
from reproduction.settings import _simulate, dataset, simulate_like

BEDS = [
    ("DS105ROI", "complete"),
    ("DS105ROI", "unaligned"),
    ("DS105ROI", "missing runs"),
    ("DS105ROI", "missing categories"),
    ("DS232", "complete"),
    ("DS232", "unaligned"),
    ("DS232", "missing runs"),
    ("DS011", "complete"),
    ("DS011", "unaligned"),
    ("DS011", "missing runs"),
]


def simulated(name, kind, seed):
    """A small study of the shape of a dataset, hard enough to be told apart."""
    setting = replace(dataset(name).shrunk(), subjects=6, voxels=200, signal=1.0)
    if setting.categories == 2:
        setting = replace(setting, samples=48)
    if not kind.startswith("missing"):
        return setting, _simulate(setting, kind == "complete", seed)
    shape = (6, setting.samples, setting.voxels, setting.categories)
    settings = {"signal": setting.signal, "n_runs": 6, "missing_runs": 4}
    if kind == "missing categories":  # each saw four of eight, and no two the same
        whole = simulate_like(*shape, n_runs=4, random_state=seed, signal=1.0)
        seen = [
            [whole.categories[(i * 4 // 3 + j) % 8] for j in range(4, 8)]
            for i in range(6)
        ]
        return setting, Study(
            s.select(np.isin(s.labels, own)) for s, own in zip(whole, seen, strict=True)
        )
    return setting, simulate_like(*shape, random_state=seed, **settings)


def accuracies(name, kind, seed):
    """Of the default, and of the paper's model with its settings, in per cent."""
    setting, study = simulated(name, kind, seed)
    paper = PaperGDM(setting.n_components, energy=setting.energy)
    return accuracies_of((GDM(), paper), study)


def accuracies_of(models, study):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few samples: of components, and of nu
        return [
            100 * between_subject_classification(gdm, study, leave_out=2).mean
            for gdm in models
        ]


MOVIES = ("complete", "a third missing at random", "ends early")


def segments_found(models, kind, seed):
    """In a movie that did not align, by models fitted to two that not all saw whole."""
    rng = np.random.default_rng(seed)
    X, ids = [], []
    parts = _simulated_parts(seed, quick=True)
    for own in parts:
        x = np.concatenate(own[:2])
        kept = np.arange(len(x))
        if kind == "a third missing at random":
            kept = np.sort(rng.permutation(len(x))[: 2 * len(x) // 3])
        elif kind == "ends early":  # for some, after 40 % of it
            kept = kept[: rng.integers(2 * len(x) // 5, len(x))]
        X.append(x[kept])
        ids.append(kept)
    found = []
    for model in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the paper's form says it separates them
            maps = model.fit(X, ids).maps_
        mapped = [m.transform(own[3]) for m, own in zip(maps, parts, strict=True)]
        found.append(100 * time_segment_matching(mapped, standardize=False).mean)
    return found


def assert_nothing_lost(name, pairs):
    """Refuse a mean difference below zero by more than two standard errors."""
    ours, papers = np.array(pairs).T
    error = (ours - papers).std(ddof=1) / np.sqrt(len(pairs))
    difference = (ours - papers).mean()
    print(
        f"| {name} | {ours.mean():.1f} | {papers.mean():.1f} | "
        f"{difference:+.1f} ± {error:.1f} |"
    )
    assert difference >= -2 * error


def test_nothing_is_lost_on_a_small_bed():
    assert_nothing_lost(
        "DS105ROI", [accuracies("DS105ROI", "unaligned", seed) for seed in range(3)]
    )


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "kind"), BEDS)
def test_nothing_is_lost_on_simulated_shapes(name, kind):
    # of six studies one or two can decide: means of six differed by 7 points
    pairs = [accuracies(name, kind, seed) for seed in range(16)]
    assert_nothing_lost(f"{name}, {kind}", pairs)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_nothing_is_lost_on_a_story_with_factors_shuffled(real_data):
    story = load_pieman(real_data / "pieman_htfa")
    pairs = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        chosen = rng.permutation(len(story))[:12]
        study = Study(
            Subject(s.id, s.data()[:, rng.permutation(s.n_voxels)])
            for s in (story.subjects[i] for i in chosen)
        )
        models = (GDM(graph="time"), PaperGDM(10, energy=0.35, graph="time"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pairs.append(
                [100 * score_matching(gdm, study, leave_out=4).mean for gdm in models]
            )
    assert_nothing_lost("Pieman, factors shuffled", pairs)


def test_nothing_is_lost_to_missing_samples():
    models = GDM(10, graph="time"), PaperGDM(10, energy=0.82, graph="time")
    kind = "a third missing at random"
    assert_nothing_lost(kind, [segments_found(models, kind, s) for s in range(2)])


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", MOVIES)
def test_nothing_is_lost_in_movies(kind):
    models = GDM(10, graph="time"), PaperGDM(10, energy=0.82, graph="time")
    pairs = [segments_found(models, kind, seed) for seed in range(16)]
    assert_nothing_lost(f"movies, {kind}", pairs)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", MOVIES)
def test_nothing_is_lost_by_the_constraint_in_movies(kind):
    models = GDM(10, graph="time"), GDM(10, graph="time", constraint="global")
    pairs = [segments_found(models, kind, seed) for seed in range(16)]
    assert_nothing_lost(f"time, movies, {kind}", pairs)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("graph", "other"), [("labels", "subject"), ("labels+time", "global")]
)
@pytest.mark.parametrize(("name", "kind"), [b for b in BEDS if b[1] != "unaligned"])
def test_nothing_is_lost_by_the_constraint(graph, other, name, kind):
    models = GDM(graph=graph), GDM(graph=graph, constraint=other)
    pairs = [accuracies_of(models, simulated(name, kind, s)[1]) for s in range(16)]
    assert_nothing_lost(f"{graph}, {name}, {kind}", pairs)
