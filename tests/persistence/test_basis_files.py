"""Basis files: alignment from stored bases equals alignment from the data."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import brainweave as bw
from brainweave._core.exceptions import ModelFileError
from brainweave.study import Study, Subject


def make_study(sizes=(40, 50, 10), seed=1):
    rng = np.random.default_rng(seed)
    centroids, names = rng.normal(size=(4, 5)), np.array(list("abcd"), dtype=object)
    subjects = []
    for i, v in enumerate(sizes):
        codes = rng.permutation(np.repeat(np.arange(4), 6))
        X = centroids[codes] @ rng.normal(size=(5, v)) + rng.normal(size=(24, v))
        runs = np.repeat([1, 2], 12)
        subjects.append(Subject(f"0{i + 1}", X, labels=names[codes], runs=runs))
    return Study(subjects)


def stored(tmp_path, study, **options):
    bases = []
    for subject in study:
        basis = bw.SubjectBasis(subject.data(), name=subject.id, **options)
        path = tmp_path / f"{subject.id}.safetensors"
        bases.append(bw.load(bw.save(basis, path, subject=subject)))
    return bases


@pytest.mark.parametrize("kernel", ["linear", "gaussian", "sigmoid"])
@pytest.mark.parametrize("standardize", [True, False])
def test_fit_from_files_equals_fit_from_data(tmp_path, kernel, standardize):
    study = make_study()
    params = {"kernel": kernel, "energy": 0.9, "standardize": standardize}
    bases = stored(tmp_path, study, **params)
    gdm = bw.PaperGDM(3, **params)
    model, wanted = clone(gdm).fit(bases), gdm.fit(study)
    X = [s.data() for s in study]
    for a, b in zip(model.transform(X), wanted.transform(X), strict=True):
        assert_allclose(a, b, rtol=0, atol=1e-10)
    if kernel == "linear":
        for a, b in zip(model.maps_, wanted.maps_, strict=True):
            assert_allclose(a.weights, b.weights, rtol=0, atol=1e-10)
            assert_allclose(a.patterns, b.patterns, rtol=0, atol=1e-10)
    saved = bw.load(bw.save(model, tmp_path / "m.safetensors"))
    for a, b in zip(saved.transform(X), wanted.transform(X), strict=True):
        assert_allclose(a, b, rtol=0, atol=1e-10)


def test_labels_runs_and_ids_come_back(tmp_path):
    study = make_study()
    for basis, subject in zip(stored(tmp_path, study), study, strict=True):
        assert basis.id == subject.id
        assert_array_equal(basis.labels, subject.labels)
        assert_array_equal(basis.runs, subject.runs)
        assert basis.stimuli is None
        assert basis.space is None


@pytest.mark.parametrize("size", [40, 10])
def test_a_stored_basis_projects_new_samples(tmp_path, size):
    study = make_study((size,))
    X, Z = study[0].data(), np.random.default_rng(5).normal(size=(7, size))
    (basis,) = stored(tmp_path, study, energy=0.8)
    wanted = bw.SubjectBasis(X, energy=0.8)
    assert_allclose(basis.project(Z), wanted.project(Z), rtol=0, atol=1e-10)
    assert_allclose(basis.gram, wanted.gram, rtol=0, atol=1e-12)
    assert_allclose(
        basis.cut(0.5).project(Z), wanted.cut(0.5).project(Z), rtol=0, atol=1e-10
    )


def test_energy_beyond_what_was_stored(tmp_path):
    study = make_study((40,))
    (basis,) = stored(tmp_path, study, energy=0.5)
    more = basis.cut(0.9)
    wanted = bw.SubjectBasis(study[0].data(), energy=0.9)
    assert_allclose(np.abs(more.coordinates), np.abs(wanted.coordinates), atol=1e-10)
    ours, theirs = (b.weights(np.eye(b.n_kept)) for b in (more, wanted))
    assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-10)


@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
def test_a_stored_basis_takes_another_kernel(tmp_path, kernel):
    study = make_study((40,))
    (basis,) = stored(tmp_path, study, kernel=kernel)
    wanted = bw.SubjectBasis(study[0].data(), kernel="quadratic")
    assert_allclose(basis.with_kernel("quadratic").gram, wanted.gram, rtol=1e-12)


def test_a_precomputed_gram_matrix_is_stored(tmp_path):
    X = make_study((40,))[0].data()
    basis = bw.SubjectBasis(X @ X.T, kernel="precomputed")
    loaded = bw.load(bw.save(basis, tmp_path / "b.safetensors"))
    cross = X[:5] @ X.T
    assert_allclose(loaded.project(cross), basis.project(cross), atol=1e-10)


def test_damaged_basis_files_are_refused(tmp_path):
    study = make_study((40,))
    stored(tmp_path, study)
    path = tmp_path / "01.safetensors"
    content = path.read_bytes()
    for cut in (0, 5, 300, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(ModelFileError, match="cut off"):
            bw.load(path)
    changed = bytearray(content)
    changed[-3] ^= 8
    path.write_bytes(bytes(changed))
    with pytest.raises(ModelFileError, match="the checksum of its arrays"):
        bw.load(path)
    assert bw.describe(path)["kind"] == "basis"
