"""Stories of users who were misled, or left with nothing; none may happen again.

Each test is one way to publish something false, or to fail on an ordinary study, told
as the user met it. The modules' own tests look closer.
"""

import numpy as np
import pytest

from brainweave import PaperGDM
from brainweave.study import EventRules

# -- the solver ------------------------------------------------------------------------


def test_a_film_of_more_than_400_time_points_is_aligned():
    """It crashed: with equal degrees the shift of the iteration was zero."""

    rng = np.random.default_rng(0)
    film = rng.normal(size=(450, 8))
    X = [film @ rng.normal(size=(8, 60)) + rng.normal(size=(450, 60)) for _ in range(9)]
    results = [
        PaperGDM(3, energy=1.0, graph="time", solver=solver).fit(X)
        for solver in ("auto", "closed", "iterative", "dense")
    ]
    for model in results:
        np.testing.assert_allclose(
            model.eigenvalues_, results[-1].eigenvalues_, rtol=1e-9
        )


@pytest.mark.parametrize("seed", [3, 5])
def test_an_eigenvalue_that_is_there_eight_times_is_found_eight_times(seed):
    """The iteration found it once or twice, then the next ones, without a word."""
    from brainweave._core.exceptions import UniquenessWarning

    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(20, 2.0))
    y = [np.append(np.arange(20), rng.choice(20, 80, p=shares)) for _ in range(12)]
    X = [rng.normal(size=(100, 150)) for _ in y]
    dense = PaperGDM(10, energy=1.0, solver="dense").fit(X, y)
    auto = PaperGDM(10, energy=1.0).fit(X, y)
    assert auto.solver_ == "iterative"
    np.testing.assert_allclose(auto.eigenvalues_, dense.eigenvalues_, rtol=1e-9)
    assert auto.n_informative_ == dense.n_informative_
    with pytest.warns(UniquenessWarning):  # the cut goes through the eight
        PaperGDM(4, energy=1.0).fit(X, y)


def subjects_of_variances(variances, seed=0):
    """Return three subjects that differ by a rotation alone."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(16, len(variances)))
    U = np.linalg.qr(noise - noise.mean(axis=0))[0] * np.sqrt(variances)
    return [
        U @ np.linalg.qr(rng.normal(size=(v, U.shape[1])))[0].T for v in (9, 12, 20)
    ]


CUTS = {
    "Hyperalignment": {},
    "RegularizedHyperalignment": {},
    "KernelHyperalignment": {"kernel": "linear"},
    "SVDHyperalignment": {},
    "GDM": {"graph": "time", "shrinkage": 1.0},
}


@pytest.mark.parametrize("name", ["PaperGDM", "Hyperalignment", "DetSRM", "SRM"])
@pytest.mark.parametrize("gap", [0, 1e-12])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_an_energy_does_not_part_directions_that_are_equally_strong(name, gap, dtype):
    """Components of 9, 4, 4 and 1: two of them reach 0.6, and the third is as good."""
    import brainweave as bw

    X = [x.astype(dtype) for x in subjects_of_variances([9, 4 + gap, 4, 1])]
    options = {"PaperGDM": {"graph": "time"}, "DetSRM": {"random_state": 0}}
    options["SRM"] = options["DetSRM"]
    aligner = getattr(bw, name)(
        3, energy=0.6, standardize=False, **options.get(name, {})
    )
    assert [b.n_kept for b in aligner.fit(X).bases_] == [3, 3, 3]
    moved = [x * (1 + 4 * np.finfo(dtype).eps * np.sign(x - 0.1)) for x in X]
    features = [np.vstack(aligner.fit(x).transform(x)) for x in (X, moved)]
    grams = [f @ f.T for f in features]
    atol = 1e-9 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(*grams, rtol=0, atol=atol * np.abs(grams[0]).max())


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("gap", [0, 1e-12, 1e-3])
def test_components_that_are_equally_strong_are_not_parted_in_silence(name, gap):
    """A cut between equal eigenvalues keeps directions that the last bit chooses."""
    import brainweave as bw
    from brainweave._core.exceptions import UniquenessWarning

    X = subjects_of_variances([9, 4 + gap, 4, 1])
    moved = [x * (1 + 1e-14 * np.sign(x - 0.1)) for x in X]
    aligner = getattr(bw, name)(2, standardize=False, **CUTS[name])
    if gap < 1e-9:
        with pytest.warns(UniquenessWarning, match="not unique") as told:
            aligner.fit(X)
        assert told[0].filename == __file__
        return
    features = [np.vstack(aligner.fit(x).transform(x)) for x in (X, moved)]
    grams = [f @ f.T for f in features]
    np.testing.assert_allclose(*grams, rtol=0, atol=1e-8 * np.abs(grams[0]).max())


def test_a_new_subject_without_a_category_does_not_depend_on_the_last_bit():
    """Scaling its data by 1 + 1e-12 moved its features by 3.7."""
    from brainweave import GDM, simulate_study
    from brainweave._core.exceptions import UndeterminedWarning

    study = simulate_study(
        n_subjects=6, categories=4, missing_categories=1, random_state=1
    )
    lacking = next(s for s in study if len(set(s.labels)) == 3)
    others = [s for s in study if s is not lacking]
    gdm = GDM(3).fit([s.data() for s in others], [s.labels for s in others])
    data = lacking.data().astype(np.float64)
    with pytest.warns(UndeterminedWarning, match="features are zero in the others"):
        once = gdm.fit_new_subject(data, lacking.labels)
    with pytest.warns(UndeterminedWarning):
        again = gdm.fit_new_subject(data * (1 + 1e-12), lacking.labels)
    assert once.n_undetermined == 1
    np.testing.assert_allclose(again.transform(data), once.transform(data), atol=1e-8)


def test_as_many_components_as_dimensions_do_not_pass_as_alignment():
    """Every subject then has features of its own; accuracy is at chance."""
    from brainweave._core.exceptions import SeparateSubjectsWarning

    rng = np.random.default_rng(0)
    y = [rng.permutation(np.arange(40) % 4) for _ in range(4)]
    X = [rng.normal(size=(4, 80))[k] + rng.normal(size=(40, 80)) for k in y]
    everything = sum(b.n_kept for b in PaperGDM(3, energy=0.5).fit(X, y).bases_)
    with pytest.warns(SeparateSubjectsWarning, match="belong to single subjects"):
        PaperGDM(everything, energy=0.5).fit(X, y)


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


@pytest.mark.filterwarnings("default::brainweave._core.exceptions.LabelWarning")
@pytest.mark.filterwarnings("ignore:nu=0.5 is infeasible")
def test_a_category_spelt_in_two_ways_is_pointed_out():
    from brainweave import GDM, between_subject_classification
    from brainweave._core.exceptions import LabelWarning

    study = _relabelled(_labelled_study(), ("s0", "s1"), "face", "Face")
    message = "'Face' and 'face' differ by case, blanks or type only"
    with pytest.warns(LabelWarning, match=message):
        GDM(2).fit(study)
    with pytest.warns(LabelWarning, match=message):
        between_subject_classification(GDM(2), study)


def test_groups_of_subjects_without_a_common_label_are_not_aligned():
    from brainweave import GDM, between_subject_classification
    from brainweave._core.exceptions import InputError

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


def test_a_study_in_another_order_is_mapped_by_its_ids():
    from brainweave import GDM

    study = _labelled_study()
    model = GDM(2).fit(study)
    turned = study.subset(study.ids[::-1])
    for found, expected in zip(
        model.transform(turned), model.transform(study)[::-1], strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_a_subject_called_1_is_not_confused_with_the_second_one():
    from brainweave import GDM, Study, Subject, between_subject_classification
    from brainweave._core.exceptions import InputError

    named = _labelled_study()
    study = Study(
        Subject(i, s.samples, labels=s.labels) for i, s in enumerate(named, start=1)
    )
    for ask in (lambda: study[1], lambda: study.subset([1])):
        with pytest.raises(InputError, match="1 could mean two subjects"):
            ask()
    assert study["1"] is study.subjects[0]
    assert study.subset(["1"]).ids == ["1"]
    assert study[0].id == "1"  # nobody is called 0
    assert next(reversed(study)).id == "4"
    assert study.index(study["3"]) == 2
    # the package itself never means an id when it counts
    for protocol in ("joint", "held-out"):
        result = between_subject_classification(GDM(2), study, protocol=protocol)
        assert result.mean > 0.8


def test_values_that_would_be_lost_are_refused():
    import scipy.sparse

    from brainweave import GDM, SRM, NoAlignment, Subject
    from brainweave._core.exceptions import InputError

    study = _labelled_study()
    X, y = study.to_lists()
    models = [GDM(2).fit(X, y), NoAlignment().fit(X), SRM(2, random_state=0).fit(X)]
    masked = np.ma.MaskedArray(X[0], mask=X[0] > 3)
    for bad, error, message in (
        (scipy.sparse.csr_array(X[0]), TypeError, "sparse"),
        (X[0] + 1j, TypeError, "real numbers"),
        (masked, InputError, "masked values"),
    ):
        with pytest.raises(error, match=message):
            Subject("s0", bad)
        for model in models:
            with pytest.raises(error, match=message):
                model.fit([bad, *X[1:]], y)
            with pytest.raises(error, match=message):
                model.transform([bad], [0])
            with pytest.raises(error, match=message):
                model.fit_new_subject(bad, y[0])
    unmasked = np.ma.MaskedArray(X[0], mask=False)
    np.testing.assert_array_equal(
        GDM(2).fit([unmasked, *X[1:]], y).eigenvalues_, models[0].eigenvalues_
    )


def test_arrays_in_the_order_of_brainiak_are_noticed():
    from brainweave import SRM
    from brainweave._core.exceptions import InputError, LayoutWarning

    rng = np.random.default_rng(0)
    own = [rng.normal(size=(40, v)) for v in (60, 70, 80)]
    with pytest.raises(InputError, match=r"BrainIAK takes voxels x samples.*x\.T"):
        SRM(2).fit([x.T for x in own])
    same = [rng.normal(size=(20, 2500)) for _ in range(2)]
    srm = SRM(2, max_iter=1, tol=0, random_state=0)
    with pytest.warns(LayoutWarning, match="2500 rows and 20 columns"):
        srm.fit([x.T for x in same])
    srm.fit(same)
    srm.fit([rng.normal(size=(300, 100)) for _ in range(2)])  # Pieman's shape


def test_a_string_is_not_a_list_of_letters():
    from brainweave import GDM

    study = _labelled_study()
    assert study.subset(labels="cat").categories == ["cat"]
    assert study.subset(subjects="s2").ids == ["s2"]
    model = GDM(2).fit(study)
    (found,) = model.transform([study["s2"].samples], subjects="s2")
    np.testing.assert_array_equal(found, model.transform(study)[2])


def test_transform_warns_of_circular_scoring():
    from sklearn.linear_model import LogisticRegression

    from brainweave import GDM

    rng = np.random.default_rng(0)
    X, y = [rng.normal(size=(70, 200)) for _ in range(6)], [np.arange(70) % 7] * 6
    shared = GDM(6).fit(X, y).transform(X)
    model = LogisticRegression().fit(np.concatenate(shared[1:]), np.concatenate(y[1:]))
    assert model.score(shared[0], y[0]) > 0.95  # as the docstrings say: circular
    for method in (GDM.transform, GDM.fit_transform):
        assert "noise" in method.__doc__
        assert "almost perfectly" in " ".join(method.__doc__.split())


# -- voxels and files in memory --------------------------------------------------------


def _three_subjects(n_voxels=120, n_samples=40):
    rng = np.random.default_rng(0)
    y = [np.arange(n_samples) % 4] * 3
    means = rng.standard_normal((4, 6))
    X = [
        means[y[0]] @ rng.standard_normal((6, n_voxels))
        + rng.standard_normal((n_samples, n_voxels))
        for _ in range(3)
    ]
    return X, y


def test_a_map_that_i_cleaned_in_memory_is_aligned_as_i_cleaned_it(tmp_path):
    from brainweave import GDM

    X, y = _three_subjects()
    maps = []
    for i, x in enumerate(X):
        np.save(tmp_path / f"{i}.npy", x)
        maps.append(np.load(tmp_path / f"{i}.npy", mmap_mode="c"))
        maps[-1] -= np.outer(np.sin(np.arange(40)), maps[-1][1])  # take out a confound
    expected = GDM(3).fit([np.array(m) for m in maps], y)
    np.testing.assert_array_equal(
        GDM(3).fit(maps, y).eigenvalues_, expected.eigenvalues_
    )


def test_a_file_that_is_replaced_while_i_work_does_not_slip_in(tmp_path):
    from brainweave import GDM

    X, y = _three_subjects()
    for i, x in enumerate(X):
        np.save(tmp_path / f"{i}.npy", x)
    maps = [np.load(tmp_path / f"{i}.npy", mmap_mode="r") for i in range(3)]
    for i, x in enumerate(X):  # another job writes its own version
        np.save(tmp_path / "new.npy", x[::-1])
        (tmp_path / "new.npy").replace(tmp_path / f"{i}.npy")
    found = GDM(3).fit(maps, y).eigenvalues_
    np.testing.assert_array_equal(found, GDM(3).fit(X, y).eigenvalues_)


def test_swapping_two_rows_after_the_fit_does_not_bend_the_weights():
    from brainweave import GDM
    from brainweave._core.exceptions import InputError

    X, y = _three_subjects()
    for first in range(1, 40):  # whichever rows
        gdm = GDM(3).fit(X, y)
        X[1][[0, first]] = X[1][[first, 0]]
        with pytest.raises(InputError, match=r"X\[1\] was changed in place"):
            _ = gdm.maps_[1].weights


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 1e25), ("float64", 1e200)])
def test_a_large_unit_does_not_make_my_voxels_constant(dtype, unit):
    from brainweave import GDM

    X, y = _three_subjects()
    scaled = [(x * unit).astype(dtype) for x in X]
    gdm = GDM(3).fit(scaled, y)
    assert all(basis.constant_voxels.size == 0 for basis in gdm.bases_)
    expected = GDM(3).fit(X, y).eigenvalues_
    np.testing.assert_allclose(gdm.eigenvalues_, expected, rtol=1e-4)
    assert np.isfinite(gdm.transform(scaled)[0]).all()


def test_a_large_hp_does_not_leave_one_dimension_in_silence():
    from brainweave import GDM

    X, y = _three_subjects()
    gdm = GDM(3, kernel="quadratic", kernel_params={"hp": 1e18}).fit(X, y)
    linear = GDM(3).fit(X, y)  # which the kernel tends to
    assert [b.n_kept for b in gdm.bases_] == [b.n_kept for b in linear.bases_]


def test_a_small_hp_that_makes_every_sample_unlike_is_refused():
    from brainweave import GDM
    from brainweave._core.exceptions import InputError

    X, y = _three_subjects()
    with pytest.raises(InputError, match=r"X\[0\].* no two samples alike"):
        GDM(3, kernel="gaussian", kernel_params={"hp": 1e-3}).fit(X, y)


def test_a_mask_that_is_mostly_empty_is_told():
    from brainweave import GDM
    from brainweave._core.exceptions import SkippedWarning

    X, y = _three_subjects()
    X[2][:, 10:] = 0
    with pytest.warns(SkippedWarning, match=r"X\[2\]: 110 of its 120 voxels"):
        GDM(3).fit(X, y)


def test_pieces_of_the_brain_can_be_scored():
    from brainweave import DetSRM, Parcelwise, Study, Subject
    from brainweave import between_subject_classification as score

    X, y = _three_subjects()
    study = Study(Subject(f"s{i}", x, labels=y[0]) for i, x in enumerate(X))
    aligner = Parcelwise(DetSRM(3, random_state=0), 1 + np.arange(120) % 2)
    for protocol in ("joint", "held-out"):
        assert score(aligner, study, protocol=protocol).mean > 0.6


def test_a_saved_model_knows_the_samples_that_made_it(tmp_path):
    from brainweave import GDM, load, save

    X, y = _three_subjects()
    fitted = GDM(3).fit([x[:30] for x in X], [known[:30] for known in y])
    model = load(save(fitted, tmp_path / "model.safetensors"))
    for m, x in zip(model.maps_, X, strict=True):
        assert m.took_part(x).tolist() == [True] * 30 + [False] * 10


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


class Slotted:
    __slots__ = ("weight",)

    def __init__(self, weight):
        self.weight = weight

    def graph(self, y):
        from brainweave.graphs.builders import label_graph

        return label_graph(y, different=self.weight)


def test_a_result_of_another_graph_is_not_taken_from_the_store(rng, tmp_path):
    from functools import partial

    import scipy.sparse

    from brainweave import GDM, split_study
    from brainweave.evaluation.grid import Grid, GridStudy
    from brainweave.graphs.builders import label_graph

    study = noise_study(rng)
    n = 4 * 14
    graphs = [
        "labels",
        label_graph,
        partial(label_graph, same=0, different=1),
        partial(label_graph, same=1, different=0),
        Slotted(1.0).graph,
        Slotted(2.0).graph,
        scipy.sparse.eye_array(n).tocsr(),
        2 * scipy.sparse.eye_array(n).tocsr(),
        0.5,
        "0.5",
    ]
    grids = [Grid(GridStudy("s", study), {"GDM": GDM(2, graph=g)}) for g in graphs]
    grids += [
        Grid(GridStudy("s", split_study(study, match=how)), {"GDM": GDM(2)})
        for how in ("truncate", "average")
    ]
    names = [next(grid.jobs()).names[0] for grid in grids]
    assert len(set(names)) == len(names)
    again = Grid(
        GridStudy("s", study),
        {"GDM": GDM(2, graph=partial(label_graph, same=0, different=1))},
    )
    assert next(again.jobs()).names[0] == names[2]
    for untold in ((g for g in "ab"), lambda y: label_graph(y)):
        grid = Grid(GridStudy("s", study), {"GDM": GDM(2, graph=untold)})
        with pytest.raises(ValueError, match="cannot be kept"):
            next(grid.jobs())


def test_a_damaged_store_gives_the_same_table_or_says_why(rng, tmp_path):
    import warnings

    import pandas as pd

    from brainweave import GDM
    from brainweave.evaluation.grid import Grid, GridStudy, run_grid

    def run():
        source = GridStudy("s", lambda: study, version="1", shape=(2, len(study)))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The record", RuntimeWarning)
            return run_grid(Grid(source, {"GDM": GDM(2)}), tmp_path).to_frame()

    study = noise_study(rng)
    shown = ["half", "fold", "score", "error"]
    whole = run()[shown]
    cells = sorted((tmp_path / "cells").iterdir())
    cells[0].write_text("{")
    cells[1].write_text("{}")
    cells[2].unlink()
    cells[2].mkdir()
    cells[3].write_text(cells[4].read_text())  # whole, and of another fold
    cells[5].write_bytes(b"\xff\xfe")
    pd.testing.assert_frame_equal(run()[shown], whole)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
def test_p_values_of_noise_are_no_news(protocol):
    import brainweave as bw

    found = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        study = noise_study(rng, n_subjects=3, n_samples=28, n_voxels=20)
        result = bw.between_subject_classification(
            bw.PaperGDM(2, energy=0.6),
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


def _signal_or_noise(seed, *, signal, n_subjects=4, categories="abc", repeats=12):
    from brainweave import Study, Subject

    rng = np.random.default_rng(seed)
    centroids = signal * rng.normal(size=(len(categories), 5))
    subjects = []
    for i in range(n_subjects):
        codes = rng.permutation(np.arange(repeats * len(categories)) % len(categories))
        X = centroids[codes] @ rng.normal(size=(5, 60)) + rng.normal(
            size=(len(codes), 60)
        )
        labels = np.array(list(categories))[codes]
        runs = np.arange(len(codes)) * 4 // len(codes)
        subjects.append(Subject(f"{i + 1:02d}", X, labels=labels, runs=runs))
    return Study(subjects, f"study {seed}")


def test_components_of_noise_look_like_noise():
    """ "Agreement 0.98, informative": of pure noise, in the samples that aligned."""
    from brainweave import GDM

    table = GDM(n_components=2).fit(_signal_or_noise(0, signal=0)).component_summary()
    assert (table["agreement"] > 0.9).all()
    assert (table["agreement_cv"].abs() < 0.6).all()
    assert (table["p"] > 0.05).all()
    assert not table["informative"].any()
    table = GDM(n_components=2).fit(_signal_or_noise(0, signal=1)).component_summary()
    assert table["informative"].all()


def test_auto_warns_that_components_of_noise_mean_nothing():
    from brainweave import GDM
    from brainweave._core.exceptions import AlignmentWarning

    said = "No evidence of a shared space.*do not read anything into them"
    with pytest.warns(AlignmentWarning, match=said):
        model = GDM("auto").fit(_signal_or_noise(0, signal=0))
    assert not model.component_summary()["informative"].any()


@pytest.mark.parametrize("signal", [0, 1])
def test_the_first_lines_of_a_report_say_whether_alignment_worked(tmp_path, signal):
    from brainweave import GDM
    from brainweave.report import write_report

    study = _signal_or_noise(0, signal=signal)
    model = GDM(n_components=2).fit(study)
    html = write_report(tmp_path / "r.html", study=study, model=model).read_text(
        "utf-8"
    )
    top = html[html.index("<h1>") : html.index('class="headlines"')]
    said, other = "Alignment worked", "No evidence of a shared space"
    assert (said if signal else other) in top
    assert (other if signal else said) not in top
    assert "No sample shown here took part in its own alignment" in html


def test_a_report_of_one_study_with_the_results_of_another(tmp_path):
    from brainweave import GDM, between_subject_classification
    from brainweave._core.exceptions import InputError
    from brainweave.report import write_report

    one, other = (_signal_or_noise(s, signal=1) for s in (0, 1))
    named = _signal_or_noise(2, signal=1, n_subjects=5)
    lettered = _signal_or_noise(3, signal=1, categories="xyz")
    result = between_subject_classification(GDM(2), one)
    assert write_report(tmp_path / "r.html", study=one, results=result).is_file()
    five = between_subject_classification(GDM(2), named)
    with pytest.raises(InputError, match="another study: it has subject '05'"):
        write_report(tmp_path / "r.html", study=one, results=five)
    xyz = between_subject_classification(GDM(2), lettered)
    with pytest.raises(InputError, match="another study"):
        write_report(tmp_path / "r.html", study=one, results=xyz)
    model = GDM(2).fit(named.subset(subjects=["05", "01", "02", "03"]))
    with pytest.raises(InputError, match="fitted on subjects '05'"):
        write_report(tmp_path / "r.html", study=other, model=model)


def test_both_protocols_in_one_report_keep_headline_baseline_and_citation(tmp_path):
    """ "gdm (joint)" is a name; the method is GDM."""
    from brainweave import GDM, NoAlignment, between_subject_classification
    from brainweave.report import write_report

    study = _signal_or_noise(0, signal=1)
    results = {
        f"{name} ({protocol})": between_subject_classification(
            aligner, study, protocol=protocol
        )
        for name, aligner in (("gdm", GDM(2)), ("none", NoAlignment()))
        for protocol in ("joint", "held-out")
    }
    page = write_report(tmp_path / "r.html", study=study, results=results)
    html = page.read_text("utf-8")
    assert "Graph-based decoding model for functional alignment" in html
    tiles = html[html.index('class="headlines"') : html.index('class="methods"')]
    assert tiles.index("accuracy, held-out") < tiles.index("accuracy, joint")
    assert tiles.count("GDM; chance") == 2
    assert tiles.count("without alignment") >= 2
    assert "with gdm (joint)" not in html
    # no permutations, no model, four subjects
    assert "Whether alignment worked cannot be told" in html


# -- the command line and the BIDS App -------------------------------------------------


def _command(capsys, *arguments, code=0):
    """Run a command as typed; return what it printed and what it said."""
    from brainweave.cli.console import run

    got = run([str(a) for a in arguments])
    out, err = capsys.readouterr()
    assert got == code, err
    assert "should not happen" not in err
    return out, err


def _noise_folder(folder, ids, n_voxels=40):
    import brainweave as bw

    rng = np.random.default_rng(3)
    return bw.Study(
        bw.Subject(
            id, rng.normal(size=(28, n_voxels)), labels=np.arange(28) % 7, runs=[1] * 28
        )
        for id in ids
    ).save(folder)


def test_noise_that_was_aligned_cannot_be_scored_as_a_success(tmp_path, capsys):
    """I fitted noise, transformed it, scored the result, and got 99 %."""
    _noise_folder(tmp_path / "noise", ["01", "02", "03", "04"])
    model = tmp_path / "m.safetensors"
    _command(capsys, "fit", tmp_path / "noise", "-o", model, "--n-components", 5, "-q")
    out, _ = _command(
        capsys, "transform", model, tmp_path / "noise", tmp_path / "shared", "-q"
    )
    assert "112 of 112 samples took part in the alignment" in out
    results = tmp_path / "results"
    words = ("compare", tmp_path / "shared", "-o", results, "-q")
    _, said = _command(capsys, *words, code=2)
    assert "took part" in said or "aligned" in said
    assert not (results / "results.json").exists()


def test_a_model_is_never_applied_to_other_people(tmp_path, capsys):
    """My model of 04, 02, 05 mapped sub-01 with the map of 04."""
    import brainweave as bw

    study = _noise_folder(tmp_path / "st", ["01", "02", "03", "04", "05"])
    fitted = study.subset(subjects=["04", "02", "05"])
    model = tmp_path / "m.safetensors"
    bw.save(bw.GDM(2).fit(*fitted.to_lists()), model)
    study.subset(subjects=["01"]).save(tmp_path / "one")
    target = tmp_path / "out"
    _, said = _command(capsys, "transform", model, tmp_path / "one", target, code=2)
    assert "does not say who its 3 subjects are" in said
    bw.save(bw.GDM(2).fit(fitted), model)
    _, said = _command(capsys, "transform", model, tmp_path / "one", target, code=2)
    assert "does not know subject '01'; it has 04, 02, 05" in said
    assert not target.exists()


def test_a_group_is_of_one_kind_of_data(tmp_path, capsys):
    """group took one task of some subjects and another task of the others."""
    import brainweave as bw

    data, out = tmp_path / "bids", tmp_path / "out"
    bw.simulate_study(
        n_subjects=3,
        n_voxels=20,
        categories=2,
        n_runs=2,
        settings=bw.study.SimulationSettings(n_nuisance=2),
    ).to_bids(data, derivatives=False)
    for path in list(data.glob("sub-03/func/*")):
        path.rename(path.with_name(path.name.replace("objects", "faces")))

    def app(level, *options, code=0):
        return _command(
            capsys, "run", data, out, level, "--no-report", "-q", *options, code=code
        )[1]

    app("participant", "--task", "objects", "--participant-label", "01", "02")
    app("participant", "--task", "faces", "--participant-label", "03")
    said = app("group", code=2)
    assert "task-objects (sub-01, sub-02); task-faces (sub-03)" in said
    # and one subject kept its basis of other smoothing, since its new job had failed
    objects = ("--task", "objects", "--n-components", 1)
    app("participant", *objects, "--smoothing-fwhm", 3, "--participant-label", "02")
    said = app("group", *objects, code=2)
    assert "--smoothing-fwhm was not given for sub-01; 3.0 for sub-02" in said
    # and the images of a subject were replaced, but not its basis
    app("participant", *objects, "--participant-label", "01", "02")
    first, second = sorted(data.glob("sub-02/func/*_bold.nii.gz"))
    second.write_bytes(first.read_bytes())
    assert "has changed since the basis of sub-02" in app("group", *objects, code=2)
    app("participant", *objects, "--participant-label", "02")
    app("group", *objects)


def test_overwriting_a_study_spares_what_is_not_ours(tmp_path, capsys):
    """--overwrite deleted my scans: any folder would do."""
    _noise_folder(tmp_path / "st", ["01", "02"])
    scans = tmp_path / "scans"
    scans.mkdir()
    (scans / "dataset_description.json").write_text('{"Name": "years of work"}')
    words = ("convert", tmp_path / "st", scans, "--overwrite", "-q")
    _, said = _command(capsys, *words, code=2)
    assert "holds no study, so it is not replaced" in said
    assert (scans / "dataset_description.json").is_file()


# -- files from elsewhere --------------------------------------------------------------


def bids_dataset(folder):
    from brainweave.study import SimulationSettings, simulate_study

    study = simulate_study(
        n_subjects=2,
        categories=3,
        n_runs=2,
        n_voxels=120,
        settings=SimulationSettings(duration=10.0),
    )
    return study.to_bids(folder / "bids", raw=False), study


def add_button_presses(folder):
    import pandas as pd

    for path in folder.rglob("*_events.tsv"):
        table = pd.read_csv(path, sep="\t")
        presses = table.assign(
            onset=table["onset"] + 4.0, duration=0.0, trial_type="button_press"
        )
        pd.concat([table, presses]).to_csv(path, sep="\t", index=False, na_rep="n/a")


def test_one_label_to_ignore_is_ignored(tmp_path):
    from brainweave import load_bids

    folder, study = bids_dataset(tmp_path)
    add_button_presses(folder)
    loaded = load_bids(folder, events=EventRules(ignore="button_press"))
    assert loaded.categories == study.categories
    assert loaded[0].labels.tolist() == study[0].labels.tolist()


def test_button_presses_are_no_category_and_are_named(tmp_path):
    from brainweave import load_bids

    folder, study = bids_dataset(tmp_path)
    add_button_presses(folder)
    n_presses = sum(len(p.read_text().splitlines()) - 1 for p in events_of(folder)) // 2
    told = rf"left out: button_press \({n_presses}\)\. Keep one .* keep="
    with pytest.warns(UserWarning, match=told):
        loaded = load_bids(folder)
    assert loaded.categories == study.categories
    assert loaded.record["left_out"] == {"button_press": n_presses}
    kept = load_bids(
        folder, events=EventRules(keep="button_press", ignore=study.categories)
    )
    assert kept.categories == ["button_press"]


def events_of(folder):
    return sorted(folder.rglob("*_events.tsv"))


def test_a_label_to_ignore_adds_to_those_that_are_no_stimuli(tmp_path):
    from brainweave import load_bids

    folder, study = bids_dataset(tmp_path)
    for path in events_of(folder):
        rows = "999\t1\tRest\n1000\t1\tfixation\n1001\tn/a\tresponse\n"
        header, *lines = path.read_text().splitlines()
        width = len(header.split("\t")) - 3
        rows = rows.replace("\n", "\tn/a" * width + "\n")
        path.write_text("\n".join([header, *lines]) + "\n" + rows)
    first, *others = study.categories
    loaded = load_bids(folder, events=EventRules(ignore=[first, "response"]))
    assert loaded.categories == others
    assert set(loaded.record["left_out"]) == {first, "Rest", "fixation", "response"}


def test_button_presses_take_no_volumes_from_blocks(tmp_path):
    from brainweave import load_bids

    folder, study = bids_dataset(tmp_path)
    add_button_presses(folder)
    with pytest.warns(UserWarning, match="volumes lie under events of more than one"):
        loaded = load_bids(folder, events=EventRules(keep="button_press"))
    assert loaded[0].labels.tolist() == study[0].labels.tolist()
    run = loaded.record["runs"]["01"]["1"]
    assert run["shared_volumes"] > 0
    assert run["overshadowed"] > 0


@pytest.mark.parametrize(
    ("what", "message"),
    [("RepetitionTime", "milliseconds: write 2.5"), ("onset", "milliseconds")],
)
def test_milliseconds_do_not_leave_a_study_of_four_samples(tmp_path, what, message):
    import json

    import pandas as pd

    from brainweave import load_bids
    from brainweave._core.exceptions import StudyError

    folder, _ = bids_dataset(tmp_path)
    for path in folder.rglob("*_bold.json"):
        content = json.loads(path.read_text())
        if what in content:
            path.write_text(json.dumps({**content, what: 1000 * content[what]}))
    for path in folder.rglob("*_events.tsv"):
        table = pd.read_csv(path, sep="\t")
        if what in table:
            table[what] *= 1000
            table.to_csv(path, sep="\t", index=False)
    with pytest.raises(StudyError, match=message):
        load_bids(folder)


def test_a_mat_file_reads_no_other_file(tmp_path):
    import h5py

    from brainweave._core.exceptions import StudyError
    from brainweave.study.formats.matlab import load_matlab

    (tmp_path / "private").write_bytes(np.arange(24.0).tobytes())
    with h5py.File(tmp_path / "gift.mat", "w") as file:
        outside = [(str(tmp_path / "private"), 0, 24 * 8)]
        file.create_dataset("data", (2, 3, 4), "f8", external=outside)
    with pytest.raises(StudyError, match="lies in other files"):
        load_matlab(tmp_path / "gift.mat")


def test_replacing_a_study_keeps_the_notes_beside_it(tmp_path):
    from brainweave.study import simulate_study

    study = simulate_study(n_subjects=2, n_voxels=30, n_runs=1, categories=2)
    study.save(tmp_path / "study")
    (tmp_path / "study" / "notes.txt").write_text("three months of work")
    (tmp_path / "study" / "results").mkdir()
    (tmp_path / "study" / "results" / "table.csv").write_text("1,2")
    study.subset(["01"]).save(tmp_path / "study", overwrite=True)
    assert (tmp_path / "study" / "notes.txt").read_text() == "three months of work"
    assert (tmp_path / "study" / "results" / "table.csv").is_file()


def test_a_flipped_byte_does_not_go_into_a_fit(tmp_path):
    from brainweave._core.exceptions import StudyError
    from brainweave.study import Study, simulate_study

    study = simulate_study(n_subjects=2, n_voxels=30, n_runs=1, categories=2)
    study.save(tmp_path / "study")
    path = tmp_path / "study" / "sub-01.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 64
    path.write_bytes(content)
    with pytest.raises(StudyError, match=r"sub-01.npy' was edited or damaged"):
        Study.open(tmp_path / "study")


def test_a_subject_or_a_run_that_is_there_twice_is_not_scored():
    from brainweave import Study, Subject, split_study
    from brainweave._core.exceptions import InputError
    from brainweave.study import simulate_study

    study = simulate_study(n_subjects=3, n_voxels=30, n_runs=2, categories=2)
    split_study(study)
    first = study[0]
    twin = Subject("9", first.data(), labels=first.labels, runs=first.runs)
    with pytest.raises(InputError, match="subject '01' and subject '9' are the same"):
        split_study(Study([*study, twin]))
    one = first.select(np.asarray(first.runs) == 1)
    again = Subject(
        first.id,
        np.vstack([one.data(), one.data()]),
        labels=[*one.labels, *one.labels],
        runs=np.repeat([1, 2], one.n_samples),
    )
    with pytest.raises(
        InputError, match="run 1 of subject '01' and run 2 of subject '01' are"
    ):
        split_study(Study([again, *list(study)[1:]]))


@pytest.mark.filterwarnings("default::brainweave._core.exceptions.LabelWarning")
@pytest.mark.parametrize("other", ["1", "1 ", " 1"])
def test_the_label_1_and_the_text_1_are_not_two_categories_in_silence(other):
    from brainweave import GDM
    from brainweave._core.exceptions import InputError, LabelWarning

    X, y = _three_subjects()
    mine = [other if label == 1 else str(label) for label in y[0]]
    with pytest.raises(InputError, match="differ by case, blanks or type only"):
        GDM(3).fit(X, [mine, *y[1:]])
    some = [other if label == 1 else label for label in y[0]]
    with pytest.warns(LabelWarning, match="differ by case, blanks or type only"):
        GDM(3).fit(X, [some, *y[1:]])


@pytest.mark.parametrize("cut", [slice(1, None), slice(None, -1)])
def test_labels_that_are_off_by_one_are_refused(cut):
    from brainweave import GDM
    from brainweave._core.exceptions import InputError

    X, y = _three_subjects()
    with pytest.raises(InputError, match=r"y\[1\] has \d+ labels for \d+ samples"):
        GDM(3).fit(X, [y[0], np.asarray(y[1])[cut], y[2]])


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 1e30), ("float64", 1e100)])
def test_a_quadratic_kernel_that_overflows_is_refused(dtype, unit):
    from brainweave import GDM
    from brainweave._core.exceptions import InputError

    X, y = _three_subjects()
    large = [(x * unit).astype(dtype) for x in X]
    with pytest.raises(InputError, match=r"X\[0\].*(too large|overflows)"):
        GDM(3, kernel="quadratic", standardize=False).fit(large, y)


def test_rows_of_a_graph_are_not_taken_for_the_parts_of_a_sparse_matrix():
    from brainweave import matrix_graph

    rows = ((0.0, 1.0, 2.0), (1.0, 0.0, 1.0), (2.0, 1.0, 0.0))
    np.testing.assert_array_equal(
        matrix_graph(rows, [1, 2]).to_sparse().toarray(), rows
    )
