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


def noise_study(rng, n_subjects=4, n_samples=28, n_voxels=40, **known):
    from brainweave import Study, Subject

    labels = np.arange(n_samples) % 7
    return Study(
        Subject(str(i), rng.normal(size=(n_samples, n_voxels)), labels=labels, **known)
        for i in range(n_subjects)
    )


def test_noise_that_was_transformed_is_not_scored(rng):
    import brainweave as bw

    study = noise_study(rng)
    shared = bw.GDM(6).fit(study).transform(study)
    flags = np.ones(28, bool)
    transformed = bw.Study(
        bw.Subject(s.id, x, labels=s.labels, aligned=flags)
        for s, x in zip(study, shared, strict=True)
    )
    for evaluate in (
        bw.between_subject_classification,
        bw.between_subject_matching,
        bw.between_subject_reconstruction,
    ):
        with pytest.raises(
            ValueError, match="28 of 28 samples of subject '0' took par"
        ):
            evaluate(bw.NoAlignment(), transformed)
    with pytest.raises(ValueError, match="would be circular"):
        bw.GDMCV().fit(transformed)
    flagged = study.map(lambda s: s._replace(aligned=flags))
    with pytest.raises(ValueError, match="would be circular"):
        bw.split_study(noise_study(rng), align=[flagged])


def test_noise_that_aligned_is_not_scored_with_itself(rng):
    import brainweave as bw

    study, other = noise_study(rng), noise_study(rng)
    with pytest.raises(
        ValueError, match=r"28 of the 28 samples .* are in align\[0\] too"
    ):
        bw.between_subject_classification(bw.GDM(6), study, align=[study])
    mixed = bw.Study(
        bw.Subject(
            a.id,
            np.vstack([a.data()[:20], b.data()[3:5].astype(np.float32)]),
            labels=np.concatenate([a.labels[:20], b.labels[3:5]]),
        )
        for a, b in zip(other, study, strict=True)
    )
    with pytest.raises(
        ValueError, match=r"2 of the 28 samples .* are in align\[0\] too"
    ):
        bw.between_subject_classification(bw.GDM(6), study, align=[mixed])
    honest = bw.between_subject_classification(bw.GDM(6), study, align=[other])
    assert honest.mean < 0.4


def test_a_result_of_another_graph_is_not_taken_from_the_store(rng, tmp_path):
    from functools import partial

    import scipy.sparse

    from brainweave import GDM
    from brainweave.evaluation.grid import Grid, GridStudy
    from brainweave.evaluation.tuning import LabelGraph
    from brainweave.graphs import label_graph

    class Slotted:
        __slots__ = ("weight",)

        def __init__(self, weight):
            self.weight = weight

        def graph(self, y):
            return label_graph(y, different=self.weight)

    study = noise_study(rng)
    n = 4 * 14
    graphs = [
        "labels",
        label_graph,
        partial(label_graph, same=0, different=1),
        partial(label_graph, same=1, different=0),
        LabelGraph(-0.5),
        LabelGraph(-0.25).__call__,
        LabelGraph(-0.125).__call__,
        Slotted(1.0).graph,
        Slotted(2.0).graph,
        scipy.sparse.eye_array(n).tocsr(),
        2 * scipy.sparse.eye_array(n).tocsr(),
        0.5,
        "0.5",
    ]
    Slotted.graph.__qualname__ = "Slotted.graph"
    grids = [Grid(GridStudy("s", study), {"GDM": GDM(2, graph=g)}) for g in graphs]
    grids += [
        Grid(GridStudy("s", study, match=how), {"GDM": GDM(2)})
        for how in ("truncate", "average")
    ]
    names = [next(grid.jobs(2, 4)).cells[0].name for grid in grids]
    assert len(set(names)) == len(names)
    again = Grid(
        GridStudy("s", study),
        {"GDM": GDM(2, graph=partial(label_graph, same=0, different=1))},
    )
    assert next(again.jobs(2, 4)).cells[0].name == names[2]
    for untold in ((g for g in "ab"), lambda y: label_graph(y)):
        grid = Grid(GridStudy("s", study), {"GDM": GDM(2)}, vary={"graph": [untold]})
        with pytest.raises(ValueError, match="cannot be kept"):
            next(grid.jobs(2, 4))


def test_a_damaged_store_gives_the_same_table_or_says_why(rng, tmp_path):
    import warnings

    import pandas as pd

    from brainweave import GDM
    from brainweave.evaluation.grid import Grid, GridStudy
    from brainweave.evaluation.runner import run_grid

    def run():
        source = GridStudy("s", lambda: study, version="1")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The record", RuntimeWarning)
            return run_grid(Grid(source, {"GDM": GDM(2)}), tmp_path).summary()

    study = noise_study(rng)
    shown = ["n_folds", "n_failed", "mean", "std", "error"]
    whole = run()[shown]
    cells = sorted((tmp_path / "cells").iterdir())
    cells[0].write_text("{")
    cells[1].write_text("{}")
    cells[2].unlink()
    cells[2].mkdir()
    cells[3].write_text(cells[4].read_text())  # whole, and of another fold
    cells[5].write_bytes(b"\xff\xfe")
    pd.testing.assert_frame_equal(run()[shown], whole)
    (record,) = (tmp_path / "studies" / "cells").glob("*.json")
    for content in ("{}", record.read_text().replace("4", "3"), "[]"):
        record.write_text(content)
        pd.testing.assert_frame_equal(run()[shown], whole)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
def test_p_values_of_noise_are_no_news(protocol):
    import brainweave as bw

    found = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        study = noise_study(rng, n_subjects=3, n_samples=28, n_voxels=20)
        result = bw.between_subject_classification(
            bw.GDM(2, energy=0.6),
            study,
            protocol=protocol,
            n_permutations=19,
            random_state=seed,
        )
        found.append(result.p_value)
    # uniform on twentieths: P(more than 3 of 12 are 0.05) is below 0.003
    assert sum(p <= 0.05 for p in found) <= 3
    assert 0.25 < np.mean(found) < 0.8


# -- components and the report ---------------------------------------------------------


# -- the command line and the BIDS App -------------------------------------------------


# -- files from elsewhere --------------------------------------------------------------
