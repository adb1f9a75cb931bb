"""standardize="reliability": voxels that answer reliably count more, everywhere."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from brainweave import (
    GDM,
    Hyperalignment,
    NoAlignment,
    Study,
    Subject,
    alignment_check,
    between_subject_classification,
    load,
    save,
)
from brainweave._core.exceptions import AlignmentWarning, LabelWarning
from brainweave.aligners.check.held_out import _half_basis, remove_trends
from brainweave.aligners.gdm.graph_parsing import labels_and_ids
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.reliability import (
    analysis_of_variance,
    reliability_scale,
    repeated_groups,
)
from planted import planted_study
from sizes import few_or_many


@pytest.mark.parametrize("voxels", [30, 90])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_basis_is_that_of_the_scaled_samples(rng, voxels, dtype):
    (x,), (y,) = planted_study(rng, lengths=(60,), voxels=(voxels,))
    x = (x + 100).astype(dtype)
    x[:, 3] = 7  # constant
    basis = SubjectBasis(x, standardize="reliability", groups=y)
    groups = repeated_groups(y)
    moves = np.arange(voxels) != 3
    scale = reliability_scale(*analysis_of_variance(x[:, moves], groups), groups)
    by_hand = (x - x.mean(axis=0, dtype=float))[:, moves] / scale
    tolerance = 1e-4 if dtype == np.float32 else 1e-9
    expected = by_hand @ by_hand.T
    assert_allclose(basis.gram, expected, atol=tolerance * np.abs(expected).max())
    assert_allclose(basis.scale[moves], scale, rtol=10 * tolerance)
    assert basis.constant_voxels.tolist() == [3]
    assert basis.reliable
    for kernel in ("gaussian", "quadratic"):
        changed = basis.with_kernel(kernel, {"hp": 50.0})
        direct = SubjectBasis(
            x,
            kernel=kernel,
            kernel_params={"hp": 50.0},
            standardize="reliability",
            groups=y,
        )
        largest = np.abs(direct.gram).max()
        assert_allclose(changed.gram, direct.gram, atol=tolerance * largest)


@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
def test_models_keep_it(rng, tmp_path, kernel):
    X, y = planted_study(rng)
    params = None if kernel == "linear" else {"hp": 200.0}
    gdm = GDM(3, standardize="reliability", kernel=kernel, kernel_params=params).fit(
        X, y
    )
    assert_allclose(gdm.fit_transform(X, y)[0], gdm.transform(X)[0], atol=1e-8)
    again = GDM(3, standardize="reliability", kernel=kernel, kernel_params=params).fit(
        gdm.bases_, y
    )
    assert_allclose(again.transform(X)[1], gdm.transform(X)[1], atol=1e-8)
    new = gdm.fit_new_subject(X[0], y[0])
    assert_allclose(new.transform(X[0]), gdm.transform([X[0]], [0])[0], atol=1e-8)
    save(gdm, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    assert_allclose(loaded.transform(X)[1], gdm.transform(X)[1], atol=1e-8)


def test_other_methods_take_it_and_say_when_nothing_repeats(rng):
    y = np.arange(36) % 4
    X, _ = planted_study(rng, lengths=(36,) * 3, labels=[y] * 3, voxels=(80,) * 3)
    plain = Hyperalignment(3).fit(X)
    ours = Hyperalignment(3, standardize="reliability").fit(X, [y] * 3)
    assert all(b.reliable for b in ours.bases_)
    assert np.abs(ours.maps_[0].scale - plain.maps_[0].scale).max() > 0.1
    with pytest.warns(LabelWarning, match="needs labels that repeat"):
        other = Hyperalignment(3, standardize="reliability").fit(X)
    assert_allclose(other.transform(X)[0], plain.transform(X)[0], atol=1e-10)
    with pytest.warns(LabelWarning, match="3 of 3 subjects"):
        GDM(3, graph="time", standardize="reliability").fit(X)
    with pytest.raises(TypeError, match="True, False or 'reliability'"):
        GDM(3, standardize="yes").fit(X, [y] * 3)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
def test_the_evaluation_scales_by_the_aligning_samples_alone(rng, protocol):
    """The same as fitting by hand on one half."""
    y = np.arange(48) % 4
    X, _ = planted_study(
        rng, lengths=(48,) * 3, labels=[y] * 3, voxels=(60,) * 3, noise=3
    )
    people = [
        Subject(f"s{i}", x, labels=y, runs=np.arange(48) // 24) for i, x in enumerate(X)
    ]
    study = Study(people, "a study")
    gdm = GDM(3, standardize="reliability")
    ours = between_subject_classification(gdm, study, halves="run", protocol=protocol)
    # labels of the other half may say anything: they do not align
    assert ours.mean > 0.5
    none = NoAlignment(standardize="reliability")
    assert between_subject_classification(none, study, halves="run").mean < 0.6


@pytest.mark.parametrize(("n", "most"), few_or_many((3, 1), (8, 2)))
def test_noise_stays_noise(n, most):
    """Nothing is found where there is nothing, neither by scores nor by the check."""
    means, worked = [], []
    for seed in range(n):
        rng = np.random.default_rng(seed)
        y = [rng.permutation(np.arange(48) % 4) for _ in range(4)]
        X = [rng.normal(size=(48, 60)) for _ in y]
        gdm = GDM(3, standardize="reliability")
        means.append(between_subject_classification(gdm, X, y).mean)
        worked.append(alignment_check(gdm.fit(X, y)).worked)
    assert abs(np.mean(means) - 0.25) < 3 * 0.035
    assert sum(worked) <= most


def test_auto_finds_nothing_in_noise(rng):
    y = [rng.permutation(np.arange(48) % 4) for _ in range(4)]
    X = [rng.normal(size=(48, 60)) for _ in y]
    with pytest.warns(AlignmentWarning, match="No evidence of a shared space"):
        GDM(standardize="reliability").fit(X, y)


# -- is what is found on held-out samples calibrated? ----------------------------------


@pytest.mark.parametrize("voxels", [30, 90])
def test_held_out_labels_do_not_scale_the_voxels_of_the_other_half(rng, voxels):
    (x,), (y,) = planted_study(rng, lengths=(60,), voxels=(voxels,))
    rows, held_out = np.arange(30), np.arange(30, 60)
    shuffled = np.concatenate([y[:30], rng.permutation(y[30:])])
    one, other = (
        SubjectBasis(x, standardize="reliability", groups=known)
        for known in (y, shuffled)
    )
    assert not np.allclose(one.scale, other.scale)
    (a, held), (b, again) = (
        _half_basis(basis, rows, held_out, [np.arange(30)]) for basis in (one, other)
    )
    assert_allclose(a.gram, b.gram, rtol=1e-12)
    assert_allclose(a.kernel_to(held), b.kernel_to(again), rtol=1e-12)
    kernel = a.kernel_to(held)  # it reads the samples, which change now
    x[:30] = remove_trends(x[:30], rows, [rows])
    own = SubjectBasis(x[:30], standardize="reliability", groups=y[:30])
    assert_allclose(a.gram, own.gram, atol=1e-9 * own.gram.max())
    assert_allclose(kernel, own.kernel_to(x[30:]), atol=1e-9 * voxels)


def test_a_basis_from_a_file_is_checked_like_its_samples(rng, tmp_path):
    X, y = planted_study(rng, lengths=(30, 30, 30))
    subjects = [
        Subject(f"s{i}", x, labels=known)
        for i, (x, known) in enumerate(zip(X, y, strict=True))
    ]
    gdm = GDM(2, standardize="reliability").fit(subjects)
    bases = []
    for subject, basis in zip(subjects, gdm.bases_, strict=True):
        path = tmp_path / f"{subject.id}.safetensors"
        bases.append(load(save(basis, path, subject=subject)))
    found = GDM(2, standardize="reliability").fit(bases)
    assert_allclose(found.eigenvalues_, gdm.eigenvalues_, rtol=1e-6)
    ours, theirs = (alignment_check(model).agreement_cv for model in (found, gdm))
    assert_allclose(ours, theirs, rtol=1e-6)
    assert alignment_check(gdm).available


def slow_noise(seed, n_subjects=4, n=64, voxels=80):
    """Nothing is shared; a quarter of the voxels drift, categories come in blocks."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n_subjects):
        shown = [np.repeat(rng.permutation(4), 4) for _ in range(n // 16)]
        x = rng.normal(size=(n, voxels))
        for t in range(1, n):
            x[t, : voxels // 4] += 0.9 * x[t - 1, : voxels // 4]
        X.append(x)
        y.append(np.concatenate(shown))
    return X, y


MODELS = {
    "reliability": {"standardize": "reliability"},
    "labels+time": {"graph": "labels+time"},
    "both": {"standardize": "reliability", "graph": "labels+time"},
}


def checked_noise(settings, n_studies):
    """Fit noise studies; return p and the agreement on held-out samples of each."""
    found = []
    for seed in range(n_studies):
        X, y = slow_noise(seed)
        if "graph" in settings:
            y = [labels_and_ids(known, range(len(known))) for known in y]
        check = alignment_check(GDM(3, **settings).fit(X, y))
        assert check.available
        found.append((check.p_value, check.agreement))
    return np.array(found).T


@pytest.mark.thorough
@pytest.mark.parametrize("name", list(MODELS))
def test_checks_of_noise_are_calibrated(name):
    p, agreement = checked_noise(MODELS[name], 20)
    assert (p < 0.05).sum() <= 2
    error = agreement.std(ddof=1) / np.sqrt(20)
    told = f"p < .05 in {(p < 0.05).sum()} of 20, agreement {agreement.mean():.3f}"
    print(f"{name}: {told} +- {error:.3f}")
    assert agreement.mean() < 2.5 * error


def test_checks_of_some_noise_are_calibrated():
    p, _ = checked_noise(MODELS["both"], 4)
    assert (p < 0.05).sum() <= 1
