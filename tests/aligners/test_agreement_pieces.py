"""What ridges are chosen by: distinctness, directions of places, their unit."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from brainweave.aligners.gdm.agreement_choice import (
    MOST_PLACES,
    distinctness,
    leading_directions,
    place_unit,
)


def literal_distinctness(means):
    found = []
    for i, own in enumerate(means):
        rows = []
        for g in range(len(own)):
            others = [
                m[g] for j, m in enumerate(means) if j != i and m[g, 0] == m[g, 0]
            ]
            if own[g, 0] == own[g, 0] and others:
                rows.append((own[g], np.mean(others, axis=0)))
        if len(rows) < 2:
            found.append(np.nan)
            continue
        A, B = (
            np.array(side) - np.mean(side, axis=0) for side in zip(*rows, strict=True)
        )
        products = A @ B.T
        size = np.sqrt((products**2).sum())
        found.append(np.trace(products) / size if size > 0 else 0.0)
    return found


def test_distinctness_compares_groups_with_the_mean_of_the_others(rng):
    shared = rng.normal(size=(6, 3))
    means = [shared + rng.normal(size=(6, 3)) for _ in range(4)]
    assert_allclose(distinctness(means), literal_distinctness(means), atol=1e-12)
    means[0][[1, 4]] = np.nan
    means[1][1] = np.nan
    means[3][1] = np.nan  # nobody but the third has it
    assert_allclose(distinctness(means), literal_distinctness(means), atol=1e-12)
    means[2][[0, 2, 3, 4, 5]] = np.nan  # has what nobody else has
    expected = literal_distinctness(means)
    assert np.isnan(expected[2])
    assert_allclose(distinctness(means), expected, atol=1e-12)
    means[2][0] = 1.0  # one group that others have is not enough
    assert np.isnan(distinctness(means)[2])
    means[2][3] = 2.0  # two are
    assert_allclose(distinctness(means), literal_distinctness(means), atol=1e-12)
    flat = [np.ones((3, 2)), rng.normal(size=(3, 2)), rng.normal(size=(3, 2))]
    assert distinctness(flat)[0] == 0.0


def test_few_places_are_used_as_they_are(rng):
    assert leading_directions([rng.normal(size=(9, MOST_PLACES))] * 2) is None


@pytest.mark.parametrize("n", [30, 90, 200])
def test_leading_directions_of_many_places_are_principal_axes(rng, n):
    places = [rng.normal(size=(n, 240)) * np.geomspace(1, 0.05, 240) for _ in range(3)]
    found = leading_directions(places)
    size = min(MOST_PLACES, 3 * n)
    assert found.shape == (240, size)
    assert_allclose(found.T @ found, np.eye(size), atol=1e-8)
    axes = np.linalg.svd(np.vstack(places), full_matrices=False)[2][:size]
    assert_allclose(found @ found.T, axes.T @ axes, atol=1e-8)


def test_the_unit_of_a_shared_map_is_the_sum_of_mean_eigenvalues(rng):
    places = [rng.normal(size=(n, 5)) for n in (4, 9)]
    expected = sum(np.linalg.eigvalsh(Z @ Z.T).mean() for Z in places)
    assert place_unit(places) == pytest.approx(expected)
