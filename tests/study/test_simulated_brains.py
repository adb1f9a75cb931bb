"""Simulated brains in one space."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from brainweave import InputError, simulate_brains

SMALL = {"shape": (8, 9, 8), "n_samples": 30, "n_components": 3}


def map_correlation(study):
    a, b = study.truth.maps[:2]
    return np.mean([np.corrcoef(x, y)[0, 1] for x, y in zip(a, b, strict=True)])


def test_a_seed_gives_one_study():
    one, again = (simulate_brains(2, **SMALL, random_state=4) for _ in range(2))
    other = simulate_brains(2, **SMALL, random_state=5)
    assert_array_equal(one[1].data(), again[1].data())
    assert not np.allclose(one[1].data(), other[1].data())


def test_maps_are_the_same_but_for_registration_and_own_topography():
    assert_allclose(map_correlation(simulate_brains(2, **SMALL)), 1)
    displaced = [
        map_correlation(simulate_brains(2, **SMALL, misregistration_mm=mm))
        for mm in (2, 6, 12)
    ]
    assert 1 > displaced[0] > displaced[1] > displaced[2]
    many = {**SMALL, "n_components": 40, "shape": (14, 14, 14)}
    half = map_correlation(simulate_brains(2, **many, own_topography=0.5))
    assert half == pytest.approx(0.5, abs=0.1)
    own = map_correlation(simulate_brains(2, **many, own_topography=1))
    assert own == pytest.approx(0, abs=0.1)


def test_signal_and_noise_have_the_variances_asked_for():
    quiet = simulate_brains(1, **{**SMALL, "n_samples": 2000}, signal=0)
    assert quiet[0].data().std() == pytest.approx(1, rel=0.1)
    loud = simulate_brains(1, **{**SMALL, "n_samples": 2000}, signal=3)
    signal = loud[0].data() - quiet[0].data()
    assert signal.std() == pytest.approx(3, rel=0.15)
    truth = loud.truth
    expected = 3 * truth.shared[0] @ truth.maps[0] / np.sqrt(3)
    assert_allclose(signal, expected, atol=1e-5)


def test_groups_see_films_of_their_own():
    films = [["a", "c"], ["b", "c"]]
    study = simulate_brains(2, films=films, **SMALL)
    first, second = study
    assert first.stimuli[0] == "a 0"
    common = set(first.stimuli.tolist()) & set(second.stimuli.tolist())
    assert common == {f"c {t}" for t in range(30)}
    both = study.truth.shared
    assert_array_equal(both[0][30:], both[1][30:])
    assert not np.allclose(both[0][:30], both[1][:30])
    assert first.runs.tolist() == ["a"] * 30 + ["c"] * 30


def test_a_stretch_of_samples_is_missing():
    study = simulate_brains(3, **SMALL, missing=0.2)
    for subject in study:
        assert subject.n_samples == 24
        steps = np.diff([int(s.split()[1]) for s in subject.stimuli])
        assert (steps != 1).sum() <= 1


def test_masks_differ_and_lie_on_one_grid():
    study = simulate_brains(3, **SMALL, mask_variability=0.1)
    assert len({s.n_voxels for s in study}) > 1
    assert len({s.space.place_labels()[0] for s in study}) == 1


def test_the_artefact_is_at_one_place_at_times_of_a_subjects_own():
    many = {**SMALL, "n_samples": 400, "signal": 0.0}
    study = simulate_brains(2, **many, artefact=3)
    means = [s.data().mean(axis=1) for s in study]
    assert abs(np.corrcoef(*means)[0, 1]) < 0.2
    sizes = [
        np.corrcoef(s.data().T, m)[-1, :-1] for s, m in zip(study, means, strict=True)
    ]
    assert min(size.min() for size in sizes) > 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"own_topography": 1.2}, "own_topography of simulate_brains .*got 1.2"),
        ({"signal": -1}, "signal of .* >= 0, got -1"),
        ({"films": [["a"]]}, "films has 1 lists for 2 subjects"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        simulate_brains(2, **{**SMALL, **wrong})
