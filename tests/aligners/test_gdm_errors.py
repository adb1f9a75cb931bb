"""Bad input gets an error that names the subject, the number and the way out."""

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError

from brainweave import GDM, PaperGDM, SubjectBasis, label_graph
from brainweave._core.exceptions import (
    AlignmentWarning,
    InputError,
    LabelWarning,
    SeparateSubjectsWarning,
)
from planted import planted_study


@pytest.fixture
def study(rng):
    return planted_study(rng, lengths=(20, 24, 28), voxels=(30, 40, 50))


def with_subject(X, i, new):
    return [*X[:i], new, *X[i + 1 :]]


def poisoned(x, value):
    x = x.copy()
    x[3, 7] = value
    return x


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_and_infinity(study, value, dtype):
    X, y = study
    X = with_subject(X, 1, poisoned(X[1].astype(dtype), value))
    with pytest.raises(InputError, match=r"X\[1\] has NaN.* sample 3, voxel 7"):
        GDM(3).fit(X, y)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (np.zeros(24), r"X\[1\] must be 2-D .* got shape \(24,\)"),
        (np.zeros((24, 2, 2)), r"X\[1\] must be 2-D"),
        (np.zeros((1, 9)), r"X\[1\] has 1 sample"),
        (np.ones((24, 9)), r"X\[1\]: all 9 voxels are constant over its 24 samples"),
        (np.zeros((24, 0)), r"X\[1\] has no voxels"),
    ],
)
def test_arrays_that_are_not_samples_by_voxels(study, new, message):
    X, y = study
    y = y if len(new) == 24 else with_subject(y, 1, y[1][: len(new)])
    with pytest.raises(InputError, match=message):
        GDM(3).fit(with_subject(X, 1, new), y)


def test_things_that_are_not_arrays(study):
    X, y = study
    with pytest.raises(TypeError, match=r"X\[1\] is the path"):
        GDM(3).fit(with_subject(X, 1, "run-01.nii.gz"), y)
    with pytest.raises(TypeError, match="real numbers"):
        GDM(3).fit(with_subject(X, 1, X[1].astype(str)), y)
    with pytest.raises(TypeError, match=r"one array of shape \(20, 30\)"):
        GDM(3).fit(X[0], y[0])
    with pytest.raises(TypeError, match="takes a list with one array"):
        GDM(3).fit(3, y)


def test_number_of_subjects(study):
    X, y = study
    with pytest.raises(InputError, match=r"at least 2 subjects; got 0"):
        GDM(3).fit([], [])
    with pytest.raises(InputError, match="got 1"):
        GDM(3).fit(X[:1], y[:1])


def test_labels(study):
    X, y = study
    with pytest.raises(InputError, match=r"y\[2\] has 27 labels for 28 samples"):
        GDM(3).fit(X, [y[0], y[1], y[2][:-1]])
    with pytest.raises(InputError, match="y has 2 entries for 3 subjects"):
        GDM(3).fit(X, y[:2])
    with pytest.raises(InputError, match="needs the categories"):
        GDM(3).fit(X)
    with pytest.raises(InputError, match=r"at least two categories; got \[0\]"):
        GDM(3).fit(X, [np.zeros(len(part), int) for part in y])
    with pytest.raises(InputError, match="one label per sample"):
        GDM(3).fit(X, [np.stack([part, part], axis=1) for part in y])


@pytest.mark.filterwarnings("default::brainweave._core.exceptions.LabelWarning")
@pytest.mark.parametrize(
    "graph",
    ["labels", label_graph, partial(label_graph, different=0)],
    ids=["name", "function", "partial"],
)
def test_a_category_that_a_subject_lacks_is_told_where_labels_join(study, graph):
    X, y = study
    y = [np.where(part == 3, 2, part) if i else part for i, part in enumerate(y)]
    with pytest.warns(LabelWarning, match=r"3 in X\[1\]"):
        GDM(2, graph=graph).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # ids need not meet
        GDM(2, graph="time").fit(X, [np.arange(len(part)) for part in y])


def test_a_subject_without_edges_to_others(study):
    X, y = study
    alone = [y[0], y[1], [None] * 28]
    with pytest.raises(InputError, match=r"2 groups .*: X\[0\], X\[1\]; X\[2\]\."):
        GDM(3).fit(X, alone)
    ids = [np.arange(20), np.arange(24), 1000 + np.arange(28)]
    with pytest.raises(InputError, match=r"2 groups .*: X\[0\], X\[1\]; X\[2\]\."):
        GDM(3, graph="time").fit(X, ids)


def test_number_of_components(study):
    X, y = study
    told = r"n_components=500 is more than the \d+ dim.* \(\d+ \+ \d+ \+ \d+\)\."
    with pytest.raises(InputError, match=told):
        PaperGDM(500, energy=0.82).fit(X, y)
    most = sum(b.n_kept for b in PaperGDM(3, energy=0.2).fit(X, y).bases_)
    told = rf"{most + 1} is more than the {most} dimensions"
    with pytest.raises(InputError, match=told):
        PaperGDM(most + 1, energy=0.2).fit(X, y)
    with pytest.warns(SeparateSubjectsWarning):
        assert PaperGDM(most, energy=0.2).fit(X, y).n_components_ == most
    with pytest.raises(InputError, match=r"( \+ \d+){5} \+ \.\.\.\)"):
        PaperGDM(500, energy=0.2).fit(X * 3, y * 3)
    for bad in (2.5, [3], True):
        with pytest.raises(TypeError, match="n_components of GDM must be an integer"):
            GDM(bad).fit(X, y)
    with pytest.raises(InputError, match="must be >= 1, got 0"):
        GDM(0).fit(X, y)
    with pytest.raises(InputError, match="must be a number or 'auto'"):
        GDM("many").fit(X, y)


@pytest.mark.parametrize("energy", [0, -0.5, 1.01, 82, np.nan])
def test_energy_outside_its_range(study, energy):
    message = r"energy of PaperGDM must be in \(0, 1\].*0\.82"
    with pytest.raises(InputError, match=message):
        PaperGDM(3, energy=energy).fit(*study)


def test_settings_per_subject(study):
    message = "energy of PaperGDM has 2 entries for 3 subjects"
    with pytest.raises(InputError, match=message):
        PaperGDM(3, energy=[0.5, 0.6]).fit(*study)
    with pytest.raises(TypeError, match="energy of PaperGDM must be a number"):
        PaperGDM(3, energy="high").fit(*study)
    with pytest.raises(TypeError, match="standardize of GDM"):
        GDM(3, standardize="yes").fit(*study)


def test_kernels(study):
    with pytest.raises(InputError, match="must be a callable or one of 'linear'"):
        GDM(3, kernel="rbf").fit(*study)
    with pytest.raises(InputError, match=r"Got {'gamma': 1} for 'gaussian'"):
        GDM(3, kernel="gaussian", kernel_params={"gamma": 1}).fit(*study)
    with pytest.raises(InputError, match="take none"):
        GDM(3, kernel_params={"hp": 1}).fit(*study)
    with pytest.raises(InputError, match=r"hp .* must be > 0, got -1"):
        GDM(3, kernel="sigmoid", kernel_params={"hp": -1}).fit(*study)
    with pytest.raises(TypeError, match="kernel_params of GDM must be"):
        GDM(3, kernel="gaussian", kernel_params=5000).fit(*study)
    with pytest.raises(InputError, match=r"gave shape \(20,\) .* for X\[0\]"):
        GDM(3, kernel=lambda a, b: np.ones(len(a))).fit(*study)
    with pytest.raises(InputError, match="same value for all samples"):
        GDM(3, kernel=lambda a, b: np.ones((len(a), len(b)))).fit(*study)


def test_precomputed_kernels(study):
    X, y = study
    with pytest.raises(InputError, match="square, symmetric Gram matrix"):
        GDM(3, kernel="precomputed").fit(X, y)


def test_graphs(study):
    X, y = study
    with pytest.raises(InputError, match="graph of GDM must be one of 'labels', 'time"):
        GDM(3, graph="categories").fit(X, y)
    with pytest.raises(TypeError, match="graph of GDM must be"):
        GDM(3, graph=3).fit(X, y)
    with pytest.raises(InputError, match=r"shape \(70, 70\).*20 \+ 24 \+ 28 = 72"):
        GDM(3, graph=np.eye(70)).fit(X)
    with pytest.raises(InputError, match="not symmetric"):
        GDM(3, graph=np.triu(np.ones((72, 72)))).fit(X)
    infinite = scipy.sparse.csr_array(np.full((72, 72), np.inf))
    with pytest.raises(InputError, match="NaN or infinite weights"):
        GDM(3, graph=infinite).fit(X)
    with pytest.raises(InputError, match=r"over \[20, 24\] samples per subject"):
        GDM(3, graph=label_graph(y[:2])).fit(X)
    with pytest.raises(InputError, match=r"row number.*\[20, 24, 28\]"):
        GDM(3, graph="time").fit(X)
    with pytest.raises(InputError, match="solver of PaperGDM must be one of"):
        PaperGDM(3, solver="fast").fit(X, y)


def test_transform(study):
    X, y = study
    with pytest.raises(NotFittedError):
        GDM(3).transform(X)
    gdm = GDM(3).fit(X, y)
    with pytest.raises(InputError, match=r"\(subject 1\) must be .* 40 voxels.*, 30\)"):
        gdm.transform([X[0], X[0], X[2]])
    with pytest.raises(InputError, match=r"Unknown subject 7.*0 to 2"):
        gdm.transform([X[0]], subjects=[7])
    with pytest.raises(TypeError, match=r"subjects are numbers 0, 1, \.\.\. or ids"):
        gdm.transform([X[0]], subjects=[1.5])
    with pytest.raises(InputError, match="1 arrays for 3 subjects"):
        gdm.transform([X[0]])
    with pytest.raises(InputError, match="has NaN or infinite values"):
        gdm.transform([poisoned(X[0], np.nan)], subjects=[0])
    with pytest.raises(InputError, match=r"must be samples x 3; got shape \(4, 2\)"):
        gdm.inverse_transform([np.zeros((4, 2))], subjects=[0])
    with pytest.raises(InputError, match=r"same stimuli.*\[24, 28\]"):
        gdm.predict_subject(0, X[1:])


def test_a_failed_fit_leaves_nothing_behind(study):
    X, y = study
    gdm = PaperGDM(500, energy=0.82)
    with pytest.raises(InputError):
        gdm.fit(X, y)
    assert not hasattr(gdm, "maps_")


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("baseline", [0, 10_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_data_changed_after_fitting_are_noticed(study, baseline, dtype, standardize):
    X, y = study
    X = [(x + baseline).astype(dtype) for x in X]
    gdm = GDM(3, standardize=standardize).fit(X, y)
    X[1][:] = X[1][::-1].copy()
    with pytest.raises(InputError, match=r"X\[1\] was changed in place"):
        gdm.transform(X)


@pytest.mark.parametrize(("n", "more"), [(6, ""), (7, " + ...")])
def test_dimensions_of_at_most_six_subjects_are_listed(rng, n, more):
    X = [rng.normal(size=(12, 3)) for _ in range(n)]
    with pytest.raises(InputError, match=f"more than the {3 * n} dimensions") as error:
        PaperGDM(99, energy=1).fit(X, [np.arange(12) % 3] * n)
    assert f"(3 + 3 + 3 + 3 + 3 + 3{more})" in str(error.value)


def test_a_new_subject_brings_its_kernel_where_subjects_differ(rng):
    X = [rng.normal(size=(30, 8)) for _ in range(3)]
    y = np.arange(30) % 3
    alike = PaperGDM(2, energy=[0.5, 0.5], kernel=["gaussian", "gaussian"])
    ((kernel, energy),) = alike._basis_settings(None)
    assert (kernel.name, energy) == ("gaussian", 0.5)
    model = PaperGDM(2, energy=[0.5, 0.9], kernel=["gaussian", "linear"])
    assert [e for _, e in model._basis_settings(2)] == [0.5, 0.9]
    model.fit(X[:2], [y, y])
    with pytest.raises(InputError, match=r"differ in kernel.*SubjectBasis"):
        model.fit_new_subject(X[2], y)
    basis = SubjectBasis(X[2], kernel="quadratic", energy=0.8)
    joined = model.fit_new_subject(basis, y)
    assert joined.kernel == "quadratic"
    same = PaperGDM(2, energy=0.8, kernel="quadratic").fit(X[:2], [y, y])
    assert joined.basis.n_kept == same.fit_new_subject(X[2], y).basis.n_kept


def test_ids_that_nobody_shares(rng):
    X = [rng.normal(size=(20, 6)) for _ in range(3)]
    clocks = [2.0 * np.arange(20) + 0.3 * i for i in range(3)]
    with pytest.raises(
        InputError, match=r"No two samples have the same id.*film_clock"
    ):
        GDM(graph="time").fit(X, clocks)


def test_a_number_of_components_that_cannot_be_tested(rng):
    story = rng.normal(size=(60, 5))
    X = [story @ rng.normal(size=(5, 20)) + rng.normal(size=(60, 20)) for _ in "abc"]
    clock = np.arange(60)
    with pytest.warns(AlignmentWarning, match=r"keeps 10 of .*same units"):
        model = GDM(graph="time").fit(X, [1000 * clock, clock, clock])
    assert model.transform(X)[0].shape[1] == 10
