import dataclasses

import numpy as np
import pytest

from brainweave.study.formats.events import match_volumes
from brainweave.study.simulation import Design, plan_runs

BLOCKS = Design(
    kind="blocks",
    categories=("a", "b", "c"),
    n_runs=3,
    repetitions=2,
    duration=10.0,
    gap=(4.0, 8.0),
    tr=2.0,
)


def shown_volumes(design, runs):
    return [match_volumes(r.events, r.n_volumes, design.tr)[0] for r in runs]


def test_every_run_shows_every_category_equally_often():
    for run in plan_runs(BLOCKS, np.random.default_rng(0)):
        assert sorted(run.events.label) == ["a", "a", "b", "b", "c", "c"]


def test_no_category_follows_itself():
    design = dataclasses.replace(BLOCKS, repetitions=20)
    for run in plan_runs(design, np.random.default_rng(1)):
        assert (run.events.label[1:] != run.events.label[:-1]).all()


@pytest.mark.parametrize("n_samples", [1, 7, 50, 97, 200])
@pytest.mark.parametrize("kind", ["blocks", "movie"])
def test_number_of_labelled_volumes_is_exact(n_samples, kind):
    gap = (0.0, 0.0) if kind == "movie" else (4.0, 8.0)
    design = dataclasses.replace(BLOCKS, kind=kind, gap=gap, n_samples=n_samples)
    runs = plan_runs(design, np.random.default_rng(2))
    assert sum((v >= 0).sum() for v in shown_volumes(design, runs)) == n_samples


def test_every_brief_event_has_volumes_of_its_own():
    design = dataclasses.replace(
        BLOCKS, kind="events", duration=0.5, gap=(0.0, 3.0), repetitions=5
    )
    runs = plan_runs(design, np.random.default_rng(3))
    for run, shown in zip(runs, shown_volumes(design, runs), strict=True):
        assert set(shown[shown >= 0]) == set(range(len(run.events)))


def test_stimuli_are_the_same_in_another_order():
    one, two = (plan_runs(BLOCKS, np.random.default_rng(s)) for s in (4, 5))
    first, second = (np.concatenate([r.events.stimulus for r in x]) for x in (one, two))
    assert sorted(first) == sorted(second)
    assert first.tolist() != second.tolist()
    assert len(set(first)) == len(first)
    assert first[0].endswith("_001.png")
