"""Nothing that should not matter does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from brainweave import PaperGDM
from planted import planted_study, projector

seeds = st.integers(0, 10_000)


def study(seed):
    rng = np.random.default_rng(seed)
    X, y = planted_study(rng, lengths=(24, 31, 27), voxels=(40, 45, 50))
    return rng, X, y


def fitted(X, y, **options):
    gdm = PaperGDM(3, energy=0.6, **options).fit(X, y)
    return gdm, [gdm._features(i) for i in range(len(X))]


def same_space(one, other, atol=1e-6):
    a, b = (projector(np.concatenate(parts).T) for parts in (one, other))
    assert np.abs(a - b).max() < atol


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_order_of_subjects(seed):
    rng, X, y = study(seed)
    order = rng.permutation(3)
    one, Y = fitted(X, y)
    other, Z = fitted([X[i] for i in order], [y[i] for i in order])
    assert_allclose(other.eigenvalues_, one.eigenvalues_, rtol=1e-9)
    same_space([Y[i] for i in order], Z)


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_order_of_samples_within_a_subject(seed):
    rng, X, y = study(seed)
    order = rng.permutation(len(X[1]))
    one, Y = fitted(X, y)
    other, Z = fitted([X[0], X[1][order], X[2]], [y[0], y[1][order], y[2]])
    assert_allclose(other.eigenvalues_, one.eigenvalues_, rtol=1e-9)
    same_space([Y[0], Y[1][order], Y[2]], Z)


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_rotations_of_voxels_without_standardisation(seed):
    rng, X, y = study(seed)
    Q = [np.linalg.qr(rng.normal(size=(x.shape[1],) * 2))[0] for x in X]
    one, Y = fitted(X, y, standardize=False)
    turned = [x @ q for x, q in zip(X, Q, strict=True)]
    other, Z = fitted(turned, y, standardize=False)
    assert_allclose(other.eigenvalues_, one.eigenvalues_, rtol=1e-9)
    same_space(Y, Z)


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_names_of_categories(seed):
    _, X, y = study(seed)
    names = np.array(["zebra", "ant", "moose", "bee"])
    one, Y = fitted(X, y)
    other, Z = fitted(X, [names[part] for part in y])
    assert_allclose(other.eigenvalues_, one.eigenvalues_, rtol=1e-10)
    same_space(Y, Z)


@settings(max_examples=10, deadline=None)
@given(seeds, st.floats(1e-3, 1e3), st.floats(-1e4, 1e4))
def test_order_scale_and_offset_of_voxels(seed, factor, offset):
    rng, X, y = study(seed)
    order = rng.permutation(X[0].shape[1])
    changed = X[0][:, order].copy()
    changed[:, 3] = factor * changed[:, 3] + offset
    one, Y = fitted(X, y)
    other, Z = fitted([changed, X[1], X[2]], y)
    assert_allclose(other.eigenvalues_, one.eigenvalues_, rtol=1e-8)
    same_space(Y, Z)


def test_a_constant_voxel_changes_nothing_but_the_record(rng):
    X, y = planted_study(rng)
    _, Y = fitted(X, y)
    wider = np.insert(X[0], 5, 7.25, axis=1)
    gdm, Z = fitted([wider, X[1], X[2]], y)
    same_space(Y, Z, atol=1e-9)
    assert gdm.bases_[0].constant_voxels.tolist() == [5]
    assert_allclose(gdm.maps_[0].weights[5], 0)


@pytest.mark.parametrize("n_jobs", [1, 2, -1])
def test_number_of_jobs(rng, n_jobs):
    X, y = planted_study(rng)
    _, Y = fitted(X, y)
    _, Z = fitted(X, y, n_jobs=n_jobs)
    for a, b in zip(Y, Z, strict=True):
        assert_allclose(a, b, atol=1e-10)


def test_inputs_are_not_modified(rng):
    X, y = planted_study(rng)
    before = [x.copy() for x in X], [part.copy() for part in y]
    gdm, _ = fitted(X, y)
    gdm.transform(X)
    gdm.fit_new_subject(X[0], y[0])
    for now, then in zip(X + y, before[0] + before[1], strict=True):
        assert np.array_equal(now, then)
