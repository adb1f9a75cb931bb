"""Stories of users who were misled, or left with nothing; none may happen again.

Each test is one way to publish something false, or to fail on an ordinary study, told
as the user met it. The modules' own tests look closer.
"""

import numpy as np
import pytest

# -- the solver ------------------------------------------------------------------------


# -- labels, subjects and their order --------------------------------------------------


def _labelled_study(n_subjects=4, seed=0):
    from brainweave import Study, Subject

    rng = np.random.default_rng(seed)
    patterns = 2 * rng.normal(size=(3, 6))
    y = np.tile(["cat", "dog", "face"], 12)
    codes = np.tile([0, 1, 2], 12)
    return Study(
        Subject(
            f"s{i}",
            patterns[codes] @ rng.normal(size=(6, 30)) + rng.normal(size=(36, 30)),
            labels=y,
        )
        for i in range(n_subjects)
    )


def _relabelled(study, who, old, new):
    return study.map(
        lambda s: (
            s._replace(labels=[new if v == old else v for v in s.labels])
            if s.id in who
            else s
        )
    )


@pytest.mark.filterwarnings("default::brainweave.exceptions.LabelWarning")
def test_a_category_spelt_in_two_ways_is_pointed_out():
    from brainweave import GDM, between_subject_classification
    from brainweave.exceptions import LabelWarning

    study = _relabelled(_labelled_study(), ("s0", "s1"), "face", "Face")
    message = "'Face' and 'face' differ by case, blanks or type only"
    with pytest.warns(LabelWarning, match=message):
        GDM(2).fit(study)
    with pytest.warns(LabelWarning, match=message):
        between_subject_classification(GDM(2), study)


def test_groups_of_subjects_without_a_common_label_are_not_aligned():
    from brainweave import GDM, between_subject_classification
    from brainweave.exceptions import InputError

    study = _labelled_study()
    for old in ("cat", "dog", "face"):
        study = _relabelled(study, ("s0", "s1"), old, old.upper())
    message = "'s0', 's1' have 'CAT', 'DOG', 'FACE'; 's2', 's3' have"
    with pytest.raises(InputError, match=message):
        GDM(2).fit(study)
    with pytest.raises(InputError, match=message):
        between_subject_classification(GDM(2), study)


@pytest.mark.parametrize("missing", [None, float("nan"), "", "n/a"])
def test_samples_without_a_label_are_no_category_anywhere(missing):
    from brainweave import GDM, Study

    study = _labelled_study()
    labels = [[missing if v == "face" else v for v in s.labels] for s in study]
    X, _ = study.to_lists()
    by_lists = GDM(1).fit(X, labels)
    known = Study(s._replace(labels=y) for s, y in zip(study, labels, strict=True))
    assert by_lists.graph_.groups[0].names == ("cat", "dog")
    assert GDM(1).fit(known).graph_.groups[0].names == ("cat", "dog")


# -- voxels and files in memory --------------------------------------------------------


# -- evaluations and their store -------------------------------------------------------


# -- components and the report ---------------------------------------------------------


# -- the command line and the BIDS App -------------------------------------------------


# -- files from elsewhere --------------------------------------------------------------
