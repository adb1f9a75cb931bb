"""Work is shared: voxels are read once, whatever is evaluated on a split study."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from brainweave import (
    GDM,
    SRM,
    DetSRM,
    Hyperalignment,
    NoAlignment,
    PaperGDM,
    Study,
    Subject,
    SubjectBasis,
    SVDHyperalignment,
    between_subject_classification,
    split_study,
)
from brainweave.evaluation.evaluate import align_folds
from evaluation_studies import CountedArray, study_lists

ENERGIES = np.linspace(0.1, 0.82, 10)  # at 1 so little data fit perfectly


def counted_study(rng, voxels=600):
    X, y = study_lists(rng, n_subjects=3, voxels=voxels, noise=4.0)
    y = [y[0]] * 3
    arrays = [CountedArray(x) for x in X]
    study = Study(
        Subject(str(i), a, labels=known)
        for i, (a, known) in enumerate(zip(arrays, y, strict=True))
    )
    return arrays, study


def total_passes(arrays):
    return sum(a.passes for a in arrays)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
def test_an_energy_sweep_reads_no_voxel_more_than_one_fit(rng, protocol):
    arrays, study = counted_study(rng)
    split = split_study(study)
    fingerprint = total_passes(arrays)
    copies = 3 * 17 / 600  # of each subject, the voxels that would show a copy
    assert fingerprint - copies <= 3  # of small studies it takes in all voxels, once
    between_subject_classification(PaperGDM(1, energy=0.5), split, protocol=protocol)
    once = total_passes(arrays)
    # per half: one pass to align, and one over both halves to map the scored samples
    assert once - fingerprint == 3 * 2 * 3
    for energy in ENERGIES:
        between_subject_classification(
            PaperGDM(1, energy=energy), split, protocol=protocol
        )
    assert total_passes(arrays) == once


def test_kernels_methods_graphs_and_protocols_read_no_voxel_either(rng):
    arrays, study = counted_study(rng)
    split = split_study(study)
    between_subject_classification(GDM(2), split)
    once = total_passes(arrays)
    models = [
        GDM(2, kernel="gaussian"),
        GDM(2, kernel="quadratic", kernel_params={"hp": 30}),
        PaperGDM(2, graph="time", energy=0.5),
        SRM(2, random_state=0, max_iter=2, tol=0),
        DetSRM(2, random_state=0, max_iter=2, tol=0),
        SVDHyperalignment(2),
        Hyperalignment(),
    ]
    for model in models:
        for protocol in ("joint", "held-out"):
            between_subject_classification(model, split, protocol=protocol)
    assert total_passes(arrays) == once


@pytest.mark.parametrize(
    "model",
    [
        PaperGDM(2, energy=0.4),
        PaperGDM(2, energy=0.7, kernel="gaussian", kernel_params={"hp": 900}),
        GDM(2, standardize=False),
        GDM(2, place_shrinkage=0.01),
        PaperGDM(2, energy=0.6, kernel="quadratic", standardize=False),
        SRM(2, random_state=0, max_iter=3, tol=0),
        SRM(2, energy=0.8, random_state=0, max_iter=3, tol=0),
        Hyperalignment(3),
        NoAlignment(),
    ],
    ids=lambda model: repr(model).replace(" ", "").replace("\n", ""),
)
def test_shared_coordinates_give_what_transform_gives(rng, model):
    X, y = study_lists(rng, n_subjects=3, noise=2.0)
    X, y = [x[:, :40] for x in X], [y[0]] * 3
    split = split_study(X, y)
    between_subject_classification(
        PaperGDM(1, energy=0.9), split
    )  # fills the cache first
    part = split.splits[0]
    (batch, _) = list(align_folds(model, split, protocol="joint"))
    fitted = model.fit(
        [np.asarray(s.samples) for s in part.aligning],
        [s.labels for s in part.aligning],
    )
    expected = fitted.transform([np.asarray(s.samples) for s in part.scored])
    for found, wanted in zip(batch[0].features, expected, strict=True):
        assert_allclose(found, wanted, atol=1e-9)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
def test_scored_samples_are_mapped_with_the_part_that_all_share(rng, protocol):
    X, y = study_lists(rng, voxels=40)
    split = split_study([x[:, :30] for x in X], y)
    model = GDM(2, place_shrinkage=0.1)
    for fold, *_ in align_folds(model, split, protocol=protocol, leave_out=2):
        assert fold.aligner.place_.used
        for s, m, f in zip(
            split.splits[fold.half].scored, fold.maps, fold.features, strict=True
        ):
            assert np.abs(m.place.weights).max() > 0
            assert_allclose(f, m.transform(s.samples), atol=1e-10)


class PairsOfVoxels:
    """A brain space that knows places of two voxels each."""

    def __init__(self, n_voxels):
        self.n_voxels = n_voxels

    def place_labels(self):
        return "frame", [str(v // 2) for v in range(self.n_voxels)], "pairs of voxels"


def test_evaluations_know_the_places_of_brain_spaces(rng):
    X, y = study_lists(rng)
    widths = [40 - 2 * i for i in range(len(X))]
    study = Study(
        Subject(str(i), x[:, :v], labels=known, space=PairsOfVoxels(v))
        for i, (x, known, v) in enumerate(zip(X, y, widths, strict=True))
    )
    (fold,) = next(align_folds(GDM(2, place_shrinkage=0.1), split_study(study)))
    assert fold.aligner.place_.what == "pairs of voxels"
    assert fold.aligner.place_.n_places == max(widths[1:]) // 2
    assert fold.maps[0].place is not None  # who was left out


def test_more_samples_than_voxels_are_shared_too(rng):
    X, y = study_lists(rng, n_subjects=3, n_samples=60, voxels=8)
    split = split_study(X, y)
    for energy in (0.6, 1.0):
        shared = between_subject_classification(PaperGDM(2, energy=energy), split)
        alone = between_subject_classification(PaperGDM(2, energy=energy), X, y)
        assert_array_equal(shared.scores, alone.scores)


def test_clearing_frees_the_bases(rng):
    X, y = study_lists(rng)
    split = split_study(X, y)
    before = between_subject_classification(GDM(2), split).scores
    for part in split.splits:
        part.clear()
        assert not part._bases
    assert_array_equal(between_subject_classification(GDM(2), split).scores, before)


def test_kept_inner_products_serve_every_kernel(rng):
    X, Z = rng.normal(size=(12, 50)), rng.normal(size=(7, 50))
    basis = SubjectBasis(X)
    products = basis.products_with(Z)
    for kernel in ("linear", "gaussian", "quadratic", "sigmoid"):
        other = basis.with_kernel(kernel)
        assert_allclose(other.project(products), other.project(Z), atol=1e-12)
    with pytest.raises(ValueError, match="got a SampleProducts"):
        basis.with_kernel(lambda a, b: a @ b.T).project(products)
    with pytest.raises(ValueError, match="Z has NaN"):
        basis.products_with(np.full((2, 50), np.nan))


def test_an_aligner_of_another_package_is_evaluated_on_arrays(rng):
    class Map:
        def __init__(self, x):
            self.mean = x.mean(axis=0)

        def transform(self, z):
            return z[:, :40] - self.mean[:40]

    class Plain:
        def get_params(self, deep=True):
            return {}

        def set_params(self):
            return self

        def __sklearn_clone__(self):
            return Plain()

        def fit(self, X, y):
            self.maps_ = [Map(x) for x in X]

        def fit_new_subject(self, X, y):
            return Map(X)

    X, y = study_lists(rng)
    for protocol in ("joint", "held-out"):
        result = between_subject_classification(Plain(), X, y, protocol=protocol)
        assert result.method == "Plain"
        assert len(result.scores) == 8
