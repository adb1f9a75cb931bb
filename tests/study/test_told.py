"""What was done to the data, told from the record."""

from brainweave.study.told import cautions, preprocessing

RECORD = {
    "settings": {
        "preprocessed": True,
        "samples": "trials-lss",
        "hrf_model": "glover",
        "label": "trial_type",
        "ignore": ["rest"],
        "confounds": ["motion"],
        "scrub": 0.5,
        "detrend": True,
        "high_pass": 0.0078,
        "smoothing_fwhm": 6.0,
        "mask": "common",
        "overlap": "longest",
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
                "shared_volumes": 3,
                "overshadowed": 1,
            }
        },
    },
    "missing_runs": {"02": ["2"]},
    "match": {"how": "truncate", "had": 10, "used": 8, "dropped": {"01": 2, "02": 0}},
}


def test_every_step_is_told():
    told = dict(preprocessing(RECORD))
    assert told["samples"].startswith("one estimate per trial (least squares separate)")
    assert told["confounds"] == "motion: 2 columns (trans_x, rot_x)"
    assert told["scrubbing"] == "above 0.5 mm: 60 of 150 volumes (sub-01 60)"
    assert told["filters"] == "trends removed, high-pass 0.0078 Hz"
    assert told["smoothing"] == "6 mm"
    assert told["mask"] == "voxels in the brain masks of all subjects"
    assert told["missing runs"] == "sub-02: 2"
    assert told["repetition time"] == "2 s"
    assert "3 volumes lie under events" in told["overlapping events"]
    assert told["matching"] == "truncate: 8 of 10 samples used; dropped: sub-01 2"
    assert preprocessing(None) == []


def test_what_to_be_careful_about():
    scrubbed, crowded = cautions(RECORD)
    assert scrubbed == "sub-01: 60 of 100 volumes (60%) were scrubbed."
    assert "24 confounds are removed from 50 volumes in 1 of 2 runs" in crowded
    assert cautions(None) == []
