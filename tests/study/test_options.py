"""Options in small objects, or one by one under their own names: the same."""

import inspect

import numpy as np
import pytest

import brainweave as bw
from brainweave._core.exceptions import InputError
from brainweave.study import Cleaning, EventRules, Noise, Responses, Sampling, Timing
from brainweave.study.options import merge_options, option_names

SMALL = {"n_subjects": 2, "categories": 2, "n_voxels": 40, "n_runs": 2}


def test_a_field_by_its_name_is_that_field_of_its_object():
    flat = bw.simulate_study(**SMALL, tr=2.0, signal=1.0, local_noise=0.1)
    grouped = bw.simulate_study(
        **SMALL,
        timing=Timing(tr=2.0),
        responses=Responses(signal=1.0),
        noise=Noise(local_noise=0.1),
    )
    assert flat.simulation == grouped.simulation
    np.testing.assert_array_equal(flat[0].data(), grouped[0].data())


def test_load_bids_takes_both_and_a_name_wins_over_its_object(tmp_path):
    bw.simulate_study(**SMALL).to_bids(tmp_path / "bids", image_dtype="float32")
    flat = bw.load_bids(
        tmp_path / "bids", ignore="cat", keep_rest=True, detrend=True, confounds=None
    )
    grouped = bw.load_bids(
        tmp_path / "bids",
        confounds=None,
        events=EventRules(ignore="cat"),
        sampling=Sampling(keep_rest=False),
        cleaning=Cleaning(detrend=True),
        keep_rest=True,
    )
    assert flat.fingerprint() == grouped.fingerprint()
    assert flat.record == grouped.record


def test_unknown_names_are_refused_with_the_nearest_or_all():
    with pytest.raises(
        TypeError, match=r"'smoothnes' of simulate_study\. Did you mean"
    ):
        bw.simulate_study(smoothnes=2)
    with pytest.raises(TypeError, match="Noise has structured_noise, local_noise"):
        bw.simulate_study(flavour=2)
    with pytest.raises(InputError, match="tr=0 must be positive"):
        bw.simulate_study(tr=0)
    with pytest.raises(InputError, match="overlap"):
        EventRules(overlap="first")


@pytest.mark.parametrize("function", [bw.load_bids, bw.simulate_study])
def test_signatures_are_short_and_every_option_can_be_listed(function):
    assert len(inspect.signature(function).parameters) <= 21
    names = option_names(function)
    assert len(names) == len(set(names)) >= 30
    assert "details" not in names
    assert {"cleaning", "noise", "timing"}.isdisjoint(names)


def test_gathering_leaves_the_objects_as_they_were():
    noise = Noise()
    (changed,) = merge_options("f", {"n_nuisance": 3}, noise)
    assert (changed.n_nuisance, noise.n_nuisance) == (3, 40)
