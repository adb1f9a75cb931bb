"""GDM as an estimator: mapping, going back, describing itself, scikit-learn habits."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.svm import NuSVC

from brainweave import GDM, PaperGDM, SubjectBasis
from brainweave._core.exceptions import (
    InputError,
    KernelWarning,
    SeparateSubjectsWarning,
)
from planted import planted_study


@pytest.fixture
def study(rng):
    return planted_study(rng, lengths=(40, 44, 48), voxels=(60, 30, 70))


def test_features_have_unit_variance_over_the_aligning_samples(study):
    shared = np.concatenate(PaperGDM(3, energy=0.82).fit_transform(*study))
    assert_allclose(shared.mean(axis=0), 0, atol=1e-12)
    assert_allclose(shared.var(axis=0), 1, rtol=1e-10)
    assert_allclose(shared.T @ shared / len(shared), np.eye(3), atol=1e-10)


@pytest.mark.parametrize("kernel", ["linear", "gaussian", "quadratic", "sigmoid"])
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.filterwarnings("ignore::brainweave._core.exceptions.KernelWarning")
def test_fit_then_transform_equals_fit_transform(study, kernel, standardize):
    X, y = study
    X = [x + 3 for x in X]
    params = {} if kernel == "linear" else {"hp": 400.0}
    gdm = GDM(3, kernel=kernel, kernel_params=params or None, standardize=standardize)
    shared = gdm.fit_transform(X, y)
    for a, b in zip(shared, gdm.transform(X), strict=True):
        assert_allclose(a, b, atol=1e-8)


def test_callable_and_precomputed_kernels_equal_the_named_one(study):
    X, y = study

    def quadratic(A, B):
        return (A @ B.T + 50) ** 2

    named = GDM(3, kernel="quadratic", kernel_params={"hp": 50}).fit(X, y)
    called = GDM(3, kernel=quadratic).fit(X, y)
    Z = [(x - x.mean(0)) / x.std(0) for x in X]
    given = GDM(3, kernel="precomputed").fit([quadratic(z, z) for z in Z], y)
    for other in (called, given):
        assert_allclose(other.eigenvalues_, named.eigenvalues_, rtol=1e-10)
    new = [x[:5] for x in X]
    expected = named.transform(new)
    crossed = [quadratic(z[:5], z) for z in Z]
    others = called.transform(new), given.transform(crossed)
    for a, b, c in zip(expected, *others, strict=True):
        assert_allclose(a, b, atol=1e-8)
        assert_allclose(a, c, atol=1e-8)


def test_bases_can_be_fitted_again_without_voxels(study):
    X, y = study
    gdm = PaperGDM(3, energy=0.9).fit(X, y)
    again = PaperGDM(2, energy=0.5).fit(gdm.bases_, y)
    fresh = PaperGDM(2, energy=0.5).fit(X, y)
    assert_allclose(again.eigenvalues_, fresh.eigenvalues_, rtol=1e-12)
    other = GDM(2, kernel="gaussian", kernel_params={"hp": 100}).fit(gdm.bases_, y)
    fresh = GDM(2, kernel="gaussian", kernel_params={"hp": 100}).fit(X, y)
    assert_allclose(other.eigenvalues_, fresh.eigenvalues_, rtol=1e-9)
    with pytest.raises(InputError, match=r"X\[0\] is a basis with standardize=True"):
        GDM(2, standardize=False).fit(gdm.bases_, y)


def test_patterns_are_the_least_squares_way_back(study):
    X, y = study
    gdm = GDM(3).fit(X, y)
    shared = gdm.transform(X)
    back = gdm.inverse_transform(shared)
    for x, s, b in zip(X, shared, back, strict=True):
        predictors = np.column_stack([np.ones(len(s)), s])
        expected = predictors @ np.linalg.lstsq(predictors, x, rcond=None)[0]
        # least squares within the kept directions, which hold what the features see
        assert np.corrcoef(b.ravel(), expected.ravel())[0, 1] > 0.999
        assert_allclose(b.mean(axis=0), x.mean(axis=0), atol=1e-8)


def test_predicting_a_subject_from_the_others(rng):
    order = np.arange(60) % 6
    X, _ = planted_study(
        rng, (60,) * 4, (50, 60, 70, 80), 6, noise=0.3, labels=[order] * 4
    )
    X_align, X_rest = [x[:30] for x in X], [x[30:] for x in X]
    gdm = PaperGDM(5, energy=0.7).fit(X_align, [order[:30]] * 4)
    predicted = gdm.predict_subject(2, [X_rest[i] for i in (0, 1, 3)])
    assert predicted.shape == X_rest[2].shape
    means = [
        np.array([z[order[30:] == c].mean(0) for c in range(6)]) - z.mean(0)
        for z in (predicted, X_rest[2])
    ]
    assert np.corrcoef(means[0].ravel(), means[1].ravel())[0, 1] > 0.5
    one = gdm.predict_subject(2, [X_rest[0]], subjects=[0])
    assert one.shape == X_rest[2].shape


def test_weights_reproduce_transform(study):
    X, y = study
    gdm = GDM(3).fit(X, y)
    Z = (X[0] - X[0].mean(0)) / X[0].std(0)
    assert_allclose(Z @ gdm.maps_[0].weights, gdm.transform(X)[0], atol=1e-10)
    nonlinear = GDM(3, kernel="gaussian", kernel_params={"hp": 99}).fit(X, y)
    with pytest.raises(InputError, match="only the linear kernel has voxel weights"):
        _ = nonlinear.maps_[0].weights


def test_component_summary(study):
    X, y = study
    gdm = PaperGDM(3, energy=0.6).fit(X, y)
    table = gdm.component_summary()
    assert list(table["informative"]) == [True] * 3
    assert_allclose(table["graph_fit"], -gdm.eigenvalues_)  # under an energy
    assert (table["agreement"] > 0.5).all()
    shared, x = gdm.transform(X)[0], X[0]
    z = (x - x.mean(0)) / x.std(0)
    s = shared[:, 0] / np.linalg.norm(shared[:, 0])
    explained = ((s @ z) ** 2).sum() / (z**2).sum()
    assert_allclose(table["variance_0"][0], explained, rtol=1e-8)


def test_lost_energy_of_an_indefinite_kernel_is_warned_about(study):
    X, y = study
    gdm = GDM(3, kernel="sigmoid", kernel_params={"hp": 1.0})
    with pytest.warns(KernelWarning, match="loses .*% of its energy"):
        gdm.fit(X, y)
    assert gdm.bases_[0].lost_share > 0.05


def test_clone_params_and_repr():
    gdm = PaperGDM(5, energy=0.7, kernel="gaussian", kernel_params={"hp": 3})
    twin = clone(gdm)
    assert twin.get_params() == gdm.get_params()
    assert twin.set_params(energy=0.2).energy == 0.2
    assert "energy=0.7" in repr(gdm)


@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
def test_pickling(study, kernel):
    X, y = study
    params = None if kernel == "linear" else {"hp": 300}
    gdm = GDM(3, kernel=kernel, kernel_params=params).fit(X, y)
    twin = pickle.loads(pickle.dumps(gdm))
    for a, b in zip(gdm.transform(X), twin.transform(X), strict=True):
        assert_allclose(a, b, atol=1e-12)
    joined = twin.fit_new_subject(X[0], y[0])
    assert_allclose(
        joined.transform(X[0]), gdm.fit_new_subject(X[0], y[0]).transform(X[0])
    )


def test_a_pickled_linear_model_leaves_the_data_behind(rng):
    X, y = planted_study(rng, lengths=(60, 60), voxels=(4000, 4000))
    size = len(pickle.dumps(GDM(3).fit(X, y)))
    assert size < 0.3 * sum(x.nbytes for x in X)


def test_time_graph_takes_ids_in_any_order(rng):
    """Shuffled rows with their ids are the same study as ordered rows."""
    X, _ = planted_study(rng, lengths=(30, 30, 30))
    ordered = PaperGDM(3, energy=0.5, graph="time").fit(X)
    orders = [rng.permutation(30) for _ in X]
    shuffled = [x[o] for x, o in zip(X, orders, strict=True)]
    gdm = PaperGDM(3, energy=0.5, graph="time").fit(shuffled, orders)
    assert_allclose(gdm.eigenvalues_, ordered.eigenvalues_, rtol=1e-9, atol=1e-9)


def test_a_subject_may_lack_a_category(rng):
    X, y = planted_study(rng, lengths=(40, 44, 48))
    keep = y[1] != 2
    gdm = GDM(3).fit([X[0], X[1][keep], X[2]], [y[0], y[1][keep], y[2]])
    assert gdm.n_informative_ == 3


def test_subject_basis_of_new_subject_can_be_given(study):
    X, y = study
    gdm = PaperGDM(3, energy=0.6).fit(X[:2], y[:2])
    basis = SubjectBasis(X[2], energy=0.6)
    a = gdm.fit_new_subject(basis, y[2]).transform(X[2])
    assert_allclose(a, gdm.fit_new_subject(X[2], y[2]).transform(X[2]), atol=1e-10)


def raider(real_data):
    import scipy.io

    halves = [
        scipy.io.loadmat(real_data / "raider_images" / f"image_data_{side}.mat")
        for side in ("lh", "rh")
    ]
    arrays = [
        next(v for k, v in half.items() if not k.startswith("__")) for half in halves
    ]
    stacked = np.concatenate(arrays)  # voxels x samples x subjects
    label = scipy.io.loadmat(real_data / "raider_images" / "label.mat")
    labels = next(v for k, v in label.items() if not k.startswith("__")).ravel()
    return [stacked[:, :, i].T for i in range(stacked.shape[2])], labels


def test_raider_images_far_above_no_alignment(real_data):
    """Runs 1-4 align, 5-8 classify, and the other way round; two subjects left out."""
    X, labels = raider(real_data)
    assert len(X) == 10
    assert X[0].shape == (56, 1000)
    first = np.arange(56) < 28
    aligned, plain = [], []
    for align in (first, ~first):
        gdm = PaperGDM("auto", energy=0.6).fit(
            [x[align] for x in X], [labels[align]] * len(X)
        )
        shared = gdm.transform([x[~align] for x in X])
        raw = [(x[~align] - x[align].mean(0)) / x[align].std(0) for x in X]
        for out in range(0, 10, 2):
            for features, scores in ((shared, aligned), (raw, plain)):
                train = [f for i, f in enumerate(features) if i not in (out, out + 1)]
                classifier = NuSVC(nu=0.5, kernel="linear").fit(
                    np.concatenate(train), np.tile(labels[~align], 8)
                )
                test = np.concatenate(features[out : out + 2])
                scores.append(classifier.score(test, np.tile(labels[~align], 2)))
    assert np.mean(aligned) > np.mean(plain) + 0.15
    assert np.mean(aligned) > 0.45  # chance is 1/7


def test_as_many_components_as_dimensions_do_not_pass_as_alignment():
    """Every subject then has features of its own; accuracy is at chance."""
    rng = np.random.default_rng(0)
    y = [rng.permutation(np.arange(40) % 4) for _ in range(4)]
    X = [rng.normal(size=(4, 80))[k] + rng.normal(size=(40, 80)) for k in y]
    everything = sum(b.n_kept for b in PaperGDM(3, energy=0.5).fit(X, y).bases_)
    with pytest.warns(SeparateSubjectsWarning, match="belong to single subjects"):
        PaperGDM(everything, energy=0.5).fit(X, y)
