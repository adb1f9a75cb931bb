"""Errors inside folds name the subjects of a study, not their place in a fit."""

import numpy as np
import pytest

from brainweave import (
    GDM,
    GDMCV,
    SRM,
    NoAlignment,
    Study,
    Subject,
    between_subject_classification,
)
from brainweave._core.exceptions import InputError
from evaluation_studies import score_matching, score_reconstruction

IDS = ["anna", "bert", "carl", "dora"]
LOCKED = [score_matching, score_reconstruction]


def study_with(rng, *, lonely=None, wide=None):
    subjects = []
    for id in IDS:
        labels = ["a", "b"] * 12
        if id == lonely:
            labels = [None] * 24
        x = rng.normal(size=(24, 13 if id == wide else 12))
        runs, stimuli = np.repeat([1, 2], 12), np.arange(24) % 12
        own = {"labels": labels, "runs": runs, "stimuli": [f"s{k}" for k in stimuli]}
        subjects.append(Subject(id, x, **own))
    return Study(subjects)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("aligner", [GDM(2, place=None), GDMCV(energies=[0.5, 0.9])])
def test_a_subject_without_ties_has_its_name(rng, aligner, protocol):
    study = study_with(rng, lonely="carl")
    with pytest.raises(InputError, match="carl") as caught:
        between_subject_classification(aligner, study, protocol=protocol)
    assert "X[" not in str(caught.value)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("evaluation", [between_subject_classification, *LOCKED])
def test_a_subject_with_other_voxels_has_its_name(rng, evaluation, protocol):
    study = study_with(rng, wide="dora")
    with pytest.raises(InputError, match="subject 'dora'") as caught:
        evaluation(NoAlignment(), study, protocol=protocol)
    assert "X[" not in str(caught.value)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("evaluation", LOCKED)
def test_a_subject_with_fewer_samples_has_its_name(rng, evaluation, protocol):
    study = study_with(rng)
    short = study[2].select(np.r_[:10, 12:22])
    study = Study([study[0], study[1], short, study[3]])
    with pytest.raises(ValueError, match="carl") as caught:
        evaluation(SRM(2), study, protocol=protocol)
    assert "X[" not in str(caught.value)


def test_arrays_keep_their_place_in_the_list(rng):
    study = study_with(rng, lonely="carl")
    X, y = [s.data() for s in study], [s.labels for s in study]
    with pytest.raises(InputError, match=r"without an edge .*; X\[2\]\."):
        between_subject_classification(GDM(2, place=None), X, y, protocol="held-out")
