from dataclasses import replace

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from brainweave._core.exceptions import InputError, StudyError
from brainweave.study import (
    Cleaning,
    Sampling,
    SimulationSettings,
    load_bids,
    simulate_study,
)
from brainweave.study.formats.bids_writer import confounds_of_run

UNCLEANED = {"confounds": None, "cleaning": Cleaning(high_pass=None)}
QUICK = SimulationSettings(n_nuisance=15, duration=10.0)
SMALL = {
    "n_subjects": 2,
    "categories": 3,
    "n_runs": 2,
    "n_voxels": (120, 180),
    "settings": QUICK,
}


def same(study, loaded, tolerance):
    assert loaded.ids == study.ids
    for one, two in zip(study, loaded, strict=True):
        assert one.labels.tolist() == two.labels.tolist()
        assert one.stimuli.tolist() == two.stimuli.tolist()
        assert one.runs.tolist() == two.runs.tolist()
        assert_allclose(one.onsets, two.onsets, atol=1e-9)
        assert one.space == two.space
        assert_allclose(one.data(), two.data(), rtol=0, atol=tolerance)


def test_written_study_reads_back_the_same(tmp_path):
    study = simulate_study(**SMALL)
    folder = study.to_bids(tmp_path / "out")
    loaded = load_bids(folder, stimulus="stim_file", **UNCLEANED)
    assert all(s.is_lazy for s in loaded)
    same(study, loaded, 1e-5)


@pytest.mark.parametrize(
    ("made", "read"),
    [
        (
            {"missing_samples": 0.2, "missing_runs": 1, "missing_categories": 1},
            {"scrub": 0.5},
        ),
        (
            {"settings": replace(QUICK, keep_rest=True)},
            {"sampling": Sampling(keep_rest=True)},
        ),
        (
            {"design": "events", "settings": replace(QUICK, tr=1.5)},
            {},
        ),
        ({"n_voxels": 150}, {"space": "MNI152NLin2009cAsym"}),
    ],
)
def test_every_kind_of_study_reads_back_the_same(tmp_path, made, read):
    study = simulate_study(**{**SMALL, **made})
    folder = study.to_bids(tmp_path / "out", raw=False)
    loaded = load_bids(folder, stimulus="stim_file", **UNCLEANED, **read)
    same(study, loaded, 1e-5)


def test_a_film_reads_back_the_same_by_a_table_of_its_events(tmp_path):
    study = simulate_study(**SMALL, design="movie")
    folder = study.to_bids(tmp_path / "out", raw=False)
    rows = []
    for i, id in enumerate(study.ids):
        for run in study.simulation.runs(i):
            events = run.events
            known = {
                "run": run.number,
                "film": events.stimulus,
                "duration": events.duration,
            }
            rows.append(
                pd.DataFrame(known | {"onset": events.onset + 5, "subject": id})
            )
    loaded = load_bids(folder, **UNCLEANED, films=pd.concat(rows))
    same(study, loaded, 1e-5)


def test_raw_images_have_air_around_the_brain(tmp_path):
    study = simulate_study(**SMALL)
    folder = study.to_bids(tmp_path / "out", derivatives=False)
    image = nib.load(folder / "sub-01/func/sub-01_task-objects_run-1_bold.nii.gz")
    assert_allclose(image.header.get_zooms()[3], 2.5)
    mean, mask = image.get_fdata().mean(axis=3), study[0].space.mask
    assert 0 < mean[~mask].max() < 0.1 * mean[mask].min()
    assert not (folder / "derivatives").exists()


def test_confounds_remove_real_noise(tmp_path):
    made = {**SMALL, "settings": replace(QUICK, keep_rest=True)}
    study = simulate_study(**made)
    folder = study.to_bids(tmp_path / "out", raw=False)
    cleaned = load_bids(folder, confounds="simple", sampling=Sampling(keep_rest=True))
    for one, two in zip(study, cleaned, strict=True):
        before, after = (x.data()[x.runs == 1].var(axis=0).mean() for x in (one, two))
        assert after < 0.5 * before


def test_lost_volumes_alone_look_like_motion():
    rng = np.random.default_rng(0)
    lost = np.array([0, 7])
    columns = confounds_of_run(
        rng.normal(size=(40, 20)).astype(np.float32),
        rng.normal(size=(40, 9)).astype(np.float32),
        tr=2.0,
        lost=lost,
    )
    moved = columns["framewise_displacement"] > 0.5
    assert np.flatnonzero(moved).tolist() == lost.tolist()
    assert {"trans_x", "rot_z_derivative1_power2", "csf", "cosine00"} <= set(columns)


def test_tables_say_what_was_shown(tmp_path):
    study = simulate_study(**SMALL)
    folder = study.to_bids(tmp_path / "out")
    table = pd.read_csv(
        folder / "sub-02/func/sub-02_task-objects_run-2_events.tsv", sep="\t"
    )
    events = study.simulation.runs(1)[1].events
    assert table["trial_type"].tolist() == events.label.tolist()
    assert_allclose(table["onset"], events.onset, atol=1e-6)
    assert table["stim_file"].tolist() == events.stimulus.tolist()


def test_folder_in_use_is_left_alone(tmp_path):
    study = simulate_study(**SMALL)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(StudyError, match="mine' is not an empty"):
        study.to_bids(tmp_path / "mine")
    with pytest.raises(StudyError, match="not an empty folder"):
        study.to_bids(tmp_path / "mine" / "thesis.txt")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    study = simulate_study(**SMALL)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(nib, "save", full)
    with pytest.raises(StudyError, match="disk was full"):
        study.to_bids(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_impossible_tasks_are_refused(tmp_path):
    with pytest.raises(InputError, match="task='my task' must consist of letters"):
        simulate_study(**SMALL).to_bids(tmp_path / "out", task="my task")
