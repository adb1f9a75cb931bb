"""Options in small objects, or one by one under their own names: the same."""

import inspect

import pytest

import brainweave as bw
from brainweave._core.exceptions import InputError
from brainweave.study import Cleaning, EventRules, Sampling
from brainweave.study.options import merge_options, option_names

SMALL = {"n_subjects": 2, "categories": 2, "n_voxels": 40, "n_runs": 2}


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
    with pytest.raises(TypeError, match=r"'ignored' of .*\. Did you mean ignore"):
        bw.load_bids(".", ignored="rest")
    with pytest.raises(TypeError, match="Cleaning has"):
        bw.load_bids(".", flavour=2)
    with pytest.raises(InputError, match="overlap"):
        EventRules(overlap="first")


@pytest.mark.parametrize(
    ("function", "n_options"), [(bw.load_bids, 30), (bw.simulate_study, 27)]
)
def test_signatures_are_short_and_every_option_can_be_listed(function, n_options):
    assert len(inspect.signature(function).parameters) <= 21
    names = option_names(function)
    assert len(names) == len(set(names)) >= n_options
    assert {"details", "cleaning", "settings"}.isdisjoint(names)


def test_gathering_leaves_the_objects_as_they_were():
    sampling = Sampling()
    (changed,) = merge_options("f", {"max_gap": 3.0}, sampling)
    assert (changed.max_gap, sampling.max_gap) == (3.0, 4.0)
