"""What was done to the data, told from the record."""

import numpy as np
import pytest

from brainweave.study import Subject
from brainweave.study.provenance import (
    cautions,
    describe_record,
    make_record,
    scaled_within,
)

RECORD = {
    "settings": {
        "preprocessed": True,
        "samples": "trials",
        "label": "trial_type",
        "ignore": ["rest"],
        "confounds": ["motion"],
        "scrub": 0.5,
        "high_pass": 0.0078,
        "smoothing_fwhm": 6.0,
        "mask": "common",
    },
    "confounds": ["trans_x", "rot_x"],
    "runs": {
        "01": {"1": {"t_r": 2.0, "volumes": 100, "scrubbed": 60, "confounds": 2}},
        "02": {
            "1": {
                "t_r": 2.0,
                "volumes": 50,
                "scrubbed": 0,
                "confounds": 24,
            }
        },
    },
    "missing_runs": {"02": ["2"]},
    "match": {"how": "truncate", "had": 10, "used": 8, "dropped": {"01": 2, "02": 0}},
}


def test_every_step_is_told():
    told = dict(describe_record(RECORD))
    assert told["samples"].startswith("one estimate per trial (least squares separate)")
    assert told["confounds"] == "motion: 2 columns (trans_x, rot_x)"
    assert told["scrubbing"] == "above 0.5 mm: 60 of 150 volumes"
    assert told["filters"] == "high-pass 0.0078 Hz (cosines)"
    assert told["smoothing"] == "6 mm"
    assert told["mask"] == "voxels in the brain masks of all runs of all subjects"
    assert told["missing runs"] == "sub-02: 2"
    assert told["repetition time"] == "2 s"
    assert told["matching"] == "truncate: 8 of 10 samples used; dropped: sub-01 2"
    assert describe_record(None) == []


@pytest.mark.parametrize(
    ("settings", "scrubbing", "left_out"),
    [
        # volumes before the steady state are left out without any scrubbing
        ({"scrub": None, "confounds": "simple"}, "none", "29 of 3710 volumes"),
        ({}, None, "29 of 3710 volumes"),  # by a mask of samples
        ({"scrub": 0.5, "confounds": "simple"}, "above 0.5 mm: 29 of 3710", None),
        ({"scrub": None, "confounds": "scrubbing"}, "29 of 3710 volumes", None),
        ({"confounds": ["motion", "scrub"]}, "29 of 3710", None),
    ],
)
def test_scrubbing_is_told_where_it_was_done_alone(settings, scrubbing, left_out):
    runs = {"01": {"1": {"volumes": 3710, "scrubbed": 29}}}
    told = dict(describe_record({"settings": settings, "runs": runs}))
    for name, want in (("scrubbing", scrubbing), ("volumes left out", left_out)):
        assert (told.get(name) is None) == (want is None)
        assert want is None or told[name].startswith(want)


def test_what_to_be_careful_about():
    scrubbed, crowded = cautions(RECORD)
    assert scrubbed == "sub-01: 60 of 100 volumes (60%) were left out."
    assert (
        "24 confounds and drifts are removed from 50 volumes in 1 of 2 runs" in crowded
    )
    assert cautions(None) == []


def test_confounds_that_go_with_the_events_are_told():
    run = {"volumes": 100, "nuisance": 20, "lost": 0.61, "levels": 9, "scrubbed": 0}
    settings = {"confounds": "simple", "samples": "volumes"}
    record = {
        "settings": settings,
        "runs": {"01": {"1": run, "2": {**run, "lost": 0.2}}},
    }
    (text,) = cautions(record)
    assert "The 20 confounds and drifts explain 61% of the categories' own" in text
    assert "in 1 of 2 runs more than half" in text


def test_files_labels_and_scale_are_told():
    settings = {"source": "nifti", "labels": "labels.tsv", "standardize": "zscore"}
    runs = {"01": {"1": {"t_r": 2.0, "volumes": 9}, "2": {"t_r": 2.0, "volumes": 9}}}
    assert describe_record({"settings": settings, "runs": runs}) == [
        ("images", "NIfTI, 2 runs"),
        ("labels", "labels.tsv"),
        ("repetition time", "2 s"),
        ("scale", "z-scores of each voxel and run"),
    ]
    matlab = {"source": "matlab", "files": ["a.mat", "b.mat"], "labels": None}
    told = [("images", "MATLAB, a.mat, b.mat"), ("labels", "none")]
    assert describe_record({"settings": matlab}) == told


def test_scales_confounds_and_odd_settings_are_told():
    scaled = {"settings": {"standardize": "psc", "confounds": None}, "zscore": "all"}
    told = dict(describe_record(scaled))
    assert told["scale"] == "z-scores of each voxel over all samples"
    assert told["confounds"] == "none removed"
    assert scaled_within(scaled) == "all"
    assert scaled_within({"settings": {"standardize": "psc"}}) == "run"
    assert scaled_within({}) is None
    shown = describe_record({"settings": {"samples": "blocks", "hrf_delay": 5.0}})
    assert shown == [("samples", "means of blocks, 5 s after the stimulus")]
    subject = Subject("1", np.eye(2), labels=["a", None])
    record = make_record({"n": np.int64(3), "some": {"x"}}, [subject], {})
    assert record["settings"] == {"n": 3, "some": ["x"]}
    assert record["samples"] == {"1": {"a": 1, "n/a": 1}}
