import gzip
import json
import shutil

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from brainweave._core.exceptions import InputError, StudyError
from brainweave.study import (
    Cleaning,
    Sampling,
    SimulationSettings,
    SurfaceSpace,
    load_bids,
    simulate_study,
)
from brainweave.study.formats.bids import open_dataset
from brainweave.study.provenance import describe_record

OPTIONS = {
    "n_subjects": 3,
    "categories": 3,
    "n_runs": 2,
    "n_voxels": (150, 200),
    "settings": SimulationSettings(n_nuisance=15, duration=10.0),
}
FMRIPREP = "derivatives/fmriprep"
NO_FILTER = Cleaning(high_pass=None)
UNCLEAN = {"detrend": False, "standardize": None, "filter": False}
BOLD = "sub-{s}_task-objects_run-{r}_space-T1w_desc-preproc_bold.nii.gz"


@pytest.fixture(scope="module")
def study():
    return simulate_study(**OPTIONS)


@pytest.fixture(scope="module")
def untouched(study, tmp_path_factory):
    return study.to_bids(tmp_path_factory.mktemp("bids") / "out")


@pytest.fixture
def dataset(untouched, tmp_path):
    """A copy to spoil."""
    return shutil.copytree(untouched, tmp_path / "out")


def bold(root, subject="01", run=1):
    return root / FMRIPREP / f"sub-{subject}" / "func" / BOLD.format(s=subject, r=run)


def events(root, subject="01", run=1):
    name = f"sub-{subject}_task-objects_run-{run}_events.tsv"
    return root / f"sub-{subject}" / "func" / name


# what is read


def test_nothing_but_headers_and_tables_is_read_at_first(dataset, monkeypatch):
    def read(*args, **kwargs):
        raise AssertionError("an image was read")

    monkeypatch.setattr("brainweave.study.spaces.VolumeSpace.read", read)
    loaded = load_bids(dataset)
    assert all(s.is_lazy for s in loaded)
    assert loaded.summary()["samples"].tolist() == [24, 24, 24]
    with pytest.raises(AssertionError, match="an image was read"):
        loaded[0].data()


def test_derivatives_can_be_opened_by_themselves(untouched, study):
    loaded = load_bids(untouched / FMRIPREP, confounds=None)
    assert loaded[1].labels.tolist() == study[1].labels.tolist()
    named = load_bids(untouched, derivatives=FMRIPREP, confounds=None)
    assert_allclose(named[1].data(), loaded[1].data(), rtol=0)


def test_raw_images_are_read_in_native_space_with_computed_masks(untouched, study):
    loaded = load_bids(untouched, derivatives=None, cleaning=NO_FILTER)
    assert [s.labels.tolist() for s in loaded] == [s.labels.tolist() for s in study]
    assert len({s.n_voxels for s in loaded}) > 1
    for one, two in zip(loaded, study, strict=True):
        inside, mask = one.space.mask, two.space.mask
        overlap = 2 * (inside & mask).sum() / (inside.sum() + mask.sum())
        assert overlap > 0.85
        both = two.space.to_image(two.data()).get_fdata()[inside & mask]
        mine = one.space.to_image(one.data()).get_fdata()[inside & mask]
        assert_allclose(mine, both, atol=2e-3)


@pytest.mark.parametrize("label", ["01", "sub-01"])
def test_participant_label_with_or_without_prefix(untouched, label):
    assert load_bids(untouched, subjects=[label]).ids == ["01"]
    assert load_bids(untouched, subjects=label).ids == ["01"]


def test_runs_can_be_chosen(untouched, study):
    loaded = load_bids(untouched, runs=[2], confounds=None)
    assert loaded[0].run_ids == [2]
    assert loaded[0].labels.tolist() == study[0].labels[study[0].runs == 2].tolist()


def test_column_of_category_and_stimulus_is_a_choice(dataset):
    for subject in ("01", "02", "03"):
        for run in (1, 2):
            table = pd.read_csv(events(dataset, subject, run), sep="\t")
            table["size"] = ["big", "small", "big"]
            table.to_csv(events(dataset, subject, run), sep="\t", index=False)
    loaded = load_bids(dataset, label="size", stimulus="trial_type")
    assert loaded.categories == ["big", "small"]
    assert set(loaded[0].stimuli) == {"bottle", "cat", "chair"}
    by_file = load_bids(dataset, label="stim_file")
    assert len(by_file.categories) == 6


def test_without_labels_every_volume_is_a_sample(dataset):
    for path in dataset.rglob("*_events.tsv"):
        path.unlink()
    loaded = load_bids(dataset, label=None, confounds=None)
    n_volumes = sum(nib.load(bold(dataset, "01", r)).shape[3] for r in (1, 2))
    assert loaded[0].n_samples == n_volumes
    assert loaded[0].labels is None
    for options in ({"label": None}, {"films": "runs"}):
        with pytest.raises(InputError, match=r"'blocks' needs label=\.\.\., and no"):
            load_bids(dataset, **options, samples="blocks")


def test_blocks_are_the_means_of_the_volumes(untouched):
    volumes = load_bids(untouched, confounds=None)[0]
    blocks = load_bids(untouched, confounds=None, samples="blocks")[0]
    assert blocks.n_samples == 6
    first = volumes.data()[:4].mean(axis=0)
    assert_allclose(blocks.data()[0], first, rtol=1e-4)


def test_trial_models_hold_the_confounds(untouched):
    plain = load_bids(untouched, samples="trials", confounds=None)[0].data()
    simple = load_bids(untouched, samples="trials", confounds=["csf"])[0].data()
    assert plain.shape == simple.shape == (6, plain.shape[1])
    assert not np.allclose(plain, simple)


def test_trial_estimates_are_the_responses(tmp_path):
    study = simulate_study(
        n_subjects=1,
        categories=3,
        n_runs=2,
        n_voxels=200,
        design="events",
        settings=SimulationSettings(
            n_nuisance=15,
            duration=10.0,
            structured_noise=0.3,
            spontaneous=0,
            variability=0,
        ),
    )
    folder = study.to_bids(tmp_path / "out", raw=False)
    subject = load_bids(folder, samples="trials", confounds=("motion",))[0]
    truth = study.truth
    recovered = subject.data() @ np.linalg.pinv(truth.maps[0])
    expected = truth.centroids[[study.categories.index(c) for c in subject.labels]]
    assert np.corrcoef(recovered.ravel(), expected.ravel())[0, 1] > 0.9


def test_common_mask_gives_all_the_same_voxels(untouched, study):
    loaded = load_bids(untouched, mask="common")
    both = np.logical_and.reduce([s.space.mask for s in study])
    assert {s.n_voxels for s in loaded} == {both.sum()}


def test_given_masks_are_used(untouched, study, tmp_path):
    inside = study[0].space.mask & study[1].space.mask
    image = nib.Nifti1Image(inside.astype(np.uint8), study[0].space.affine)
    nib.save(image, tmp_path / "mask.nii.gz")
    loaded = load_bids(untouched, subjects=["01", "02"], mask=tmp_path / "mask.nii.gz")
    assert {s.n_voxels for s in loaded} == {inside.sum()}
    own = {"01": image, "02": image}
    assert load_bids(untouched, subjects=["01", "02"], mask=own)[1].n_voxels
    with pytest.raises(InputError, match="no mask for subject '03'; there is for '01'"):
        load_bids(untouched, mask=own)


@pytest.mark.parametrize(
    "options",
    [
        {"confounds": "simple"},
        {"confounds": "scrubbing"},
        {"confounds": ("motion", "high_pass")},
        {"confounds": ["csf", "trans_x_derivative1"]},
        {"confounds": None, "cleaning": Cleaning(standardize="zscore")},
        {"confounds": None, "cleaning": Cleaning(high_pass=0.01, smoothing_fwhm=12)},
    ],
)
def test_every_way_of_cleaning_changes_the_samples(untouched, options):
    off = {"confounds": None, "cleaning": NO_FILTER}
    plain = load_bids(untouched, subjects=["01"], **off)[0]
    cleaned = load_bids(untouched, subjects=["01"], **options)[0]
    assert np.isfinite(cleaned.data()).all()
    assert cleaned.data().shape[1] == plain.n_voxels
    assert cleaned.n_samples != plain.n_samples or not np.allclose(
        cleaned.data(), plain.data()
    )


@pytest.mark.parametrize("samples", ["volumes", "blocks"])
@pytest.mark.parametrize(
    ("options", "order"),
    [
        ({"high_pass": None}, 0),
        ({"high_pass": 0.02}, 3),
        ({}, 1),
    ],
)
def test_confounds_are_fitted_with_a_level_per_event(
    untouched, samples, options, order
):
    one = {"subjects": ["01"], "runs": [1]}
    named = {"confounds": ["csf", "trans_x"], "samples": samples}
    loaded = load_bids(untouched, **named, **one, cleaning=Cleaning(**options))
    run = loaded[0].samples.runs[0]
    counts = loaded.record["runs"]["01"]["1"]
    assert counts["levels"] == 4  # three blocks, and the rest
    plain = load_bids(
        untouched,
        confounds=None,
        sampling=Sampling(keep_rest=True),
        cleaning=NO_FILTER,
        **one,
    )[0]
    levels, n = np.asarray(run.levels), counts["volumes"]
    cosines = np.cos(
        np.pi * np.arange(1, order + 1) * (np.arange(n)[:, None] + 0.5) / n
    )
    assert counts["nuisance"] == 2 + order
    columns = [(levels == k).astype(float) for k in np.unique(levels)]
    removed = np.hstack([run.confounds[:, :2], cosines])
    table = np.column_stack([*columns, removed - removed.mean(axis=0)])
    values = plain.data().astype(float)
    fitted = np.linalg.lstsq(table, values, rcond=1e-9)[0]
    last = removed.shape[1]
    expected = values - table[:, -last:] @ fitted[-last:]
    if samples == "volumes":
        expected = expected[levels >= 0]
    else:
        expected = [expected[levels == k].mean(axis=0) for k in range(3)]
    assert_allclose(loaded[0].data(), expected, atol=2e-3)


def test_cosines_of_fmriprep_are_not_removed_twice(untouched):
    one = {"subjects": ["01"], "runs": [1]}
    loaded = load_bids(untouched, **one)  # simple: with fMRIPrep's cosines
    without = load_bids(untouched, cleaning=NO_FILTER, **one)
    assert any(name.startswith("cosine") for name in loaded.record["confounds"])
    assert_array_equal(loaded[0].data(), without[0].data())
    assert loaded.record["settings"]["high_pass"] is None
    told = dict(describe_record(loaded.record))["filters"]
    assert told == "high-pass by the cosines among the confounds"
    motion = load_bids(untouched, confounds=("motion",), **one)
    assert motion.record["settings"]["high_pass"] == 1 / 128
    assert dict(describe_record(motion.record))["filters"].startswith(
        "high-pass 0.0078"
    )


def test_what_blocks_share_with_a_confound_stays(tmp_path):
    quiet = SimulationSettings(structured_noise=0.01, spontaneous=0, local_noise=0.1)
    study = simulate_study(
        n_subjects=2, categories=4, n_runs=2, n_voxels=60, settings=quiet
    )
    folder = study.to_bids(tmp_path / "b", raw=False)
    whole = load_bids(folder, confounds=None, samples="blocks")[0].data()
    loaded = load_bids(folder, confounds=("high_pass",), samples="blocks")
    kept = loaded[0].data()
    run = loaded.record["runs"]["01"]["1"]
    assert run["lost"] > 0.25  # what cosines alone could explain of the categories
    assert np.corrcoef(whole.ravel(), kept.ravel())[0, 1] > 0.9


def test_without_room_confounds_are_removed_as_nilearn_does(untouched):
    from nilearn.signal import clean

    chosen = {"subjects": ["01"], "runs": [1]}
    loaded = load_bids(untouched, confounds="simple", **chosen)
    run = loaded[0].samples.runs[0]
    counts = loaded.record["runs"]["01"]["1"]
    assert counts["levels"] == 0
    assert run.levels is None
    assert counts["nuisance"] > counts["volumes"] / 2 - 4
    plain = load_bids(
        untouched, confounds=None, sampling=Sampling(keep_rest=True), **chosen
    )[0]
    expected = clean(plain.data(), confounds=run.confounds, **UNCLEAN)
    assert_allclose(loaded[0].data(), expected[run.plan.rows], atol=1e-3)


def test_study_can_be_saved_and_opened(untouched, tmp_path):
    from brainweave.study import Study

    loaded = load_bids(untouched, confounds=None)
    loaded.save(tmp_path / "plain")
    opened = Study.open(tmp_path / "plain")
    assert opened[2].labels.tolist() == loaded[2].labels.tolist()
    assert_allclose(opened[2].data(), loaded[2].data(), rtol=0)


# what may differ between subjects


def test_missing_run_leaves_the_others(dataset, study):
    for path in dataset.rglob("sub-02_task-objects_run-1*"):
        path.unlink()
    loaded = load_bids(dataset, confounds=None)
    assert loaded["02"].run_ids == [2]
    assert loaded["01"].run_ids == [1, 2]
    kept = study["02"].labels[study["02"].runs == 2]
    assert loaded["02"].labels.tolist() == kept.tolist()


def test_extra_run_is_read_under_its_number(dataset):
    for path in list(dataset.rglob("sub-03_task-objects_run-2*")):
        shutil.copy(path, path.with_name(path.name.replace("run-2", "run-10")))
    loaded = load_bids(dataset, confounds=None)
    assert loaded["03"].run_ids == [1, 2, 10]
    assert loaded["03"].runs.tolist() == sorted(loaded["03"].runs)
    assert loaded["01"].run_ids == [1, 2]


def test_other_repetition_time_is_used_and_mentioned(dataset):
    sidecar = bold(dataset, "02", 1).with_name(
        bold(dataset, "02", 1).name.replace(".nii.gz", ".json")
    )
    content = json.loads(sidecar.read_text())
    sidecar.write_text(json.dumps({**content, "RepetitionTime": 2.0}))
    image = nib.load(bold(dataset, "02", 1))
    image.header.set_zooms((*image.header.get_zooms()[:3], 2.0))
    nib.save(
        nib.Nifti1Image(image.get_fdata(), None, image.header), image.get_filename()
    )
    with pytest.warns(UserWarning, match=r"differ: 2\.5 s \(sub-01.*2 s \(sub-02"):
        loaded = load_bids(dataset, confounds=None)
    here = loaded["02"]
    steps = np.diff(here.onsets[here.runs == 1])
    assert_allclose(steps[steps < 3], 2.0, atol=1e-9)
    assert_allclose(here.onsets[here.runs == 2] % 2.5, 0, atol=1e-9)


def test_order_of_rows_in_the_events_does_not_matter(dataset, study):
    for path in dataset.rglob("*_events.tsv"):
        table = pd.read_csv(path, sep="\t")
        table.iloc[::-1].to_csv(path, sep="\t", index=False)
    loaded = load_bids(dataset, confounds=None)
    assert [s.labels.tolist() for s in loaded] == [s.labels.tolist() for s in study]


def test_run_without_events_is_left_out_and_mentioned(dataset):
    events(dataset, "01", 2).unlink()
    with pytest.warns(UserWarning, match="'01': .*run-2.* has no events file"):
        loaded = load_bids(dataset)
    assert loaded["01"].run_ids == [1]


def test_events_of_all_subjects_can_lie_at_the_top(dataset):
    # the inheritance principle: one file for all runs
    table = events(dataset, "01", 1).read_text()
    for path in dataset.rglob("sub-*_events.tsv"):
        path.unlink()
    (dataset / "task-objects_events.tsv").write_text(table)
    loaded = load_bids(dataset)
    assert loaded[0].labels.tolist() == loaded[2].labels.tolist()


def test_sessions_are_part_of_the_run(dataset):
    for root in (dataset, dataset / FMRIPREP):
        folder = root / "sub-01"
        for session in ("a", "b"):
            target = folder / f"ses-{session}" / "func"
            target.mkdir(parents=True)
            for path in (folder / "func").iterdir():
                name = path.name.replace("sub-01_", f"sub-01_ses-{session}_")
                shutil.copy(path, target / name)
        shutil.rmtree(folder / "func")
    loaded = load_bids(dataset, subjects=["01"])
    assert loaded[0].run_ids[0] == "ses-a_run-1"
    assert len(loaded[0].run_ids) == 4
    second = load_bids(dataset, subjects=["01"], sessions=["ses-b"])
    assert second[0].run_ids == ["ses-b_run-1", "ses-b_run-2"]
    with pytest.raises(StudyError, match="no sessions 'c'; it has 'a', 'b'"):
        load_bids(dataset, subjects=["01"], sessions=["c"])


# what cannot be read


def test_unknown_column_lists_those_there_are(untouched):
    with pytest.raises(StudyError, match=r"events.tsv.*'valence'.*'trial_type'"):
        load_bids(untouched, label="valence")


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "not even a header"), ("onset\tduration\ttrial_type\n", "no events")],
)
def test_empty_events_file_is_named(dataset, text, message):
    events(dataset, "02", 1).write_text(text)
    with pytest.raises(StudyError, match=f"sub-02_task-objects_run-1.*{message}"):
        load_bids(dataset)


def test_events_after_the_scan_are_an_error(dataset):
    for run in (1, 2):
        table = pd.read_csv(events(dataset, "01", run), sep="\t")
        table["onset"] += 1e5
        table.to_csv(events(dataset, "01", run), sep="\t", index=False)
    with pytest.raises(StudyError, match=r"sub-01.*3 of 3 events lie outside the run"):
        load_bids(dataset)


def test_mask_of_another_shape_or_affine_is_refused(untouched, study):
    mask = study[0].space.mask.astype(np.uint8)
    cut = nib.Nifti1Image(mask[1:], study[0].space.affine)
    with pytest.raises(StudyError, match=r"'01'.*its mask.*resample_to_img"):
        load_bids(untouched, mask=cut)
    moved = study[0].space.affine.copy()
    moved[0, 3] += 5
    shifted = nib.Nifti1Image(mask, moved)
    with pytest.raises(StudyError, match="same shape but other affines"):
        load_bids(untouched, mask=shifted)


def test_voxels_that_are_not_numbers_are_refused(dataset, study):
    i, j, k = np.argwhere(study[0].space.mask)[5]

    image = nib.load(bold(dataset))
    data = image.get_fdata(dtype=np.float32)
    data[i, j, k, 3] = np.nan
    nib.save(nib.Nifti1Image(data, image.affine), bold(dataset))
    loaded = load_bids(dataset, confounds=None)
    with pytest.raises(StudyError, match=r"run-1.*1 of \d+ voxels.*tighter mask"):
        loaded[0].data()


def test_gzip_that_ends_early_is_named(dataset):
    path = bold(dataset, "02", 2)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    loaded = load_bids(dataset)
    with pytest.raises(StudyError, match=r"sub-02.*run-2.*ends early"):
        loaded["02"].data()


def test_file_that_is_no_image_is_named(dataset):
    bold(dataset, "01", 1).write_bytes(gzip.compress(b"not an image" * 100))
    with pytest.raises(StudyError, match=r"sub-01.*run-1.*is not readable"):
        load_bids(dataset)


def test_missing_mask_and_confounds_name_the_way_out(dataset):
    for path in dataset.rglob("*desc-brain_mask*"):
        path.unlink()
    with pytest.raises(StudyError, match=r'has no brain mask.*mask="epi"'):
        load_bids(dataset)
    for path in dataset.rglob("*timeseries*"):
        path.unlink()
    with pytest.raises(StudyError, match=r"has no confounds.*confounds=None"):
        load_bids(dataset, mask="epi")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "rest"}, "no task 'rest'; it has 'objects'"),
        ({"space": "MNI"}, "no space 'MNI'; it has 'T1w'"),
        ({"subjects": ["09"]}, "no subjects '09'; it has '01', '02', '03'"),
        ({"runs": [7]}, "no runs '7'; it has '1', '2'"),
        ({"derivatives": "derivatives/xcp"}, "no folder .*derivatives/xcp'"),
        ({"confounds": "everything"}, "cannot be used with confounds='everything'"),
        ({"confounds": ["heart"]}, "no column 'heart'.*'trans_x'"),
        ({"confounds": ("motions",)}, "cannot be used with confounds"),
        ({"scrub": 0.0}, "scrub=0.0 must be a displacement above zero"),
        ({"samples": "runs"}, "samples of load_bids must be one of"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is(untouched, options, message):
    with pytest.raises(ValueError, match=message):
        load_bids(untouched, **options)


def test_several_tasks_or_spaces_must_be_chosen_from(dataset):
    for path in list(dataset.rglob("sub-01_task-objects_run-1*")):
        shutil.copy(path, path.with_name(path.name.replace("objects", "faces")))
    with pytest.raises(StudyError, match="more than one task: 'faces', 'objects'"):
        load_bids(dataset)
    assert load_bids(dataset, task="faces").ids == ["01"]
    for path in list(dataset.rglob("*space-T1w*")):
        shutil.copy(path, path.with_name(path.name.replace("T1w", "MNI152Lin")))
    with pytest.raises(StudyError, match="more than one space: 'MNI152Lin', 'T1w'"):
        load_bids(dataset, task="objects")
    assert len(load_bids(dataset, task="task-objects", space="T1w")) == 3


def test_several_derivatives_must_be_chosen_from(dataset):
    shutil.copytree(dataset / FMRIPREP, dataset / "derivatives" / "fmriprep-24")
    with pytest.raises(StudyError, match=r"several derivatives.*fmriprep-24"):
        load_bids(dataset)


def test_other_descriptions_give_way_to_the_preprocessed_series(dataset):
    for path in list(dataset.rglob("*desc-preproc_bold.nii.gz")):
        shutil.copy(path, path.with_name(path.name.replace("preproc", "denoised")))
    assert len(load_bids(dataset)) == 3


def test_versions_of_a_run_are_told_apart_by_entities(dataset):
    for path in list(dataset.rglob("*space-T1w*")):
        for res in ("1", "2"):
            name = path.name.replace("space-T1w", f"space-T1w_res-{res}")
            shutil.copy(path, path.with_name(name))
        path.unlink()
    with pytest.raises(StudyError, match=r"2 files for run 1: .*res-1.*entities="):
        load_bids(dataset)
    loaded = load_bids(dataset, entities={"res": "2"})
    assert all("res-2" in run.name for s in loaded for run in s.samples.runs)
    with pytest.raises(StudyError, match="no res '3'; it has '1', '2'"):
        load_bids(dataset, entities={"res": "res-3"})


def test_folders_without_images_are_refused(tmp_path):
    with pytest.raises(StudyError, match="There is no folder"):
        load_bids(tmp_path / "nowhere")
    with pytest.raises(StudyError, match=r"has no BOLD images.*root of a BIDS"):
        load_bids(tmp_path)


def test_broken_description_is_named(dataset):
    (dataset / "dataset_description.json").write_text("{")
    with pytest.raises(StudyError, match=r"dataset_description.json.*not readable"):
        load_bids(dataset)


# times that make no sense


def set_repetition_time(root, value):
    for path in root.rglob("*_bold.json"):
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "RepetitionTime": value}))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2500, r"bold.json' is 2500; .* \(not milliseconds\)"),
        (2.0, r"bold.json' is 2 s, but the header of .* says 2\.5 s"),
        ("two", "bold.json' is 'two'; it must be a number"),
    ],
)
def test_repetition_time_that_cannot_be_is_refused(dataset, value, message):
    set_repetition_time(dataset, value)
    with pytest.raises(StudyError, match=message):
        load_bids(dataset)


def test_given_repetition_time_overrules_the_files(dataset, study):
    set_repetition_time(dataset, 2500)
    loaded = load_bids(dataset, sampling=Sampling(t_r=2.5))
    assert loaded[0].labels.tolist() == study[0].labels.tolist()
    with pytest.raises(InputError, match="t_r='slow'"):
        load_bids(dataset, sampling=Sampling(t_r="slow"))


def change_events(root, change):
    for path in root.rglob("*_events.tsv"):
        change(table := pd.read_csv(path, sep="\t"))
        table.to_csv(path, sep="\t", index=False)


def test_times_in_milliseconds_are_refused(dataset):
    def onsets(table):
        table["onset"] *= 1000

    change_events(dataset, onsets)
    with pytest.raises(StudyError, match=r"events lie outside the run.*milliseconds"):
        load_bids(dataset)


def test_events_outside_their_run_are_mentioned(dataset):
    def onsets(table):
        table.loc[len(table) - 1, "onset"] += 1000

    change_events(dataset, onsets)
    with pytest.warns(UserWarning, match="6 events lie before or after"):
        loaded = load_bids(dataset)
    assert loaded.record["runs"]["01"]["1"]["outside"] == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("vox_offset", np.nan), ("xyzt_units", 255), ("datatype", 77)],
)
def test_damaged_header_is_named(dataset, field, value):
    path = bold(dataset, "02", 2)
    content = bytearray(gzip.decompress(path.read_bytes()))
    header = np.frombuffer(content[:348], nib.nifti1.header_dtype).copy()
    header[field] = value
    path.write_bytes(gzip.compress(header.tobytes() + content[348:]))
    with pytest.raises(StudyError, match=r"sub-02.*run-2"):
        load_bids(dataset)["02"].data()


# what was done


def test_record_says_what_was_done(dataset, tmp_path):
    from brainweave.study import Study

    for path in dataset.rglob("sub-02_task-objects_run-1*"):
        path.unlink()
    how = {"ignore": "cat", "cleaning": Cleaning(smoothing_fwhm=6.0)}
    loaded = load_bids(dataset, scrub=0.5, **how)
    record = loaded.record
    assert record["settings"]["ignore"] == ["cat"]
    assert record["settings"]["confounds"] == "simple"
    assert record["settings"]["smoothing_fwhm"] == 6.0
    assert record["settings"]["hrf_delay"] == 5.0
    assert record["missing_runs"] == {"02": ["1"]}
    run = record["runs"]["01"]["1"]
    assert run["t_r"] == 2.5
    assert run["volumes"] == nib.load(bold(dataset)).shape[3]
    assert run["samples"] == (loaded["01"].runs == 1).sum()
    assert record["samples"]["01"] == {
        c: int((loaded["01"].labels == c).sum()) for c in ("bottle", "chair")
    }
    assert json.loads(json.dumps(record)) == record
    kept = loaded.subset(["01"]).zscore().split_halves()[1][:1]
    assert kept.record == {**record, "zscore": "run"}
    saved = loaded.save(tmp_path / "plain")
    assert saved.record == Study.open(tmp_path / "plain").record == record


def test_scrubbed_volumes_are_those_that_any_rule_leaves_out(dataset):
    # two ways to censor: what either leaves out is out
    path = next(dataset.rglob("sub-01*run-1*timeseries.tsv"))
    table = pd.read_csv(path, sep="\t", na_values="n/a")
    table["framewise_displacement"] = 0.0
    table.loc[20, "framewise_displacement"] = 0.15  # which nilearn lets pass
    table["std_dvars"] = 0.0
    table.loc[9, "std_dvars"] = 5.0
    table.to_csv(path, sep="\t", index=False, na_rep="n/a")
    options = {"subjects": "01", "runs": 1, "sampling": Sampling(keep_rest=True)}
    loaded = load_bids(dataset, confounds=("scrub",), scrub=0.1, **options)
    volumes = np.arange(loaded.record["runs"]["01"]["1"]["volumes"])
    assert loaded.record["runs"]["01"]["1"]["scrubbed"] == 2
    assert_allclose(loaded[0].onsets, np.delete(volumes, [9, 20]) * 2.5)


def test_volumes_before_the_steady_state_are_not_called_scrubbed(dataset):
    for path in dataset.rglob("*run-1*confounds_timeseries.tsv"):
        table = pd.read_csv(path, sep="\t", na_values="n/a")
        for volume in (0, 1):
            table[f"non_steady_state_outlier0{volume}"] = 0
            table.loc[volume, f"non_steady_state_outlier0{volume}"] = 1
        table["framewise_displacement"] = 0.0
        table.loc[6, "framewise_displacement"] = 3.0
        table.to_csv(path, sep="\t", index=False, na_rep="n/a")
    chosen = {"runs": [1], "subjects": ["01", "02"], "confounds": ("motion",)}
    loaded = load_bids(dataset, **chosen)
    run = loaded.record["runs"]["01"]["1"]
    assert (run["unsteady"], run["scrubbed"]) == (2, 0)
    told = dict(describe_record(loaded.record))
    assert told["scrubbing"] == "none"
    total = sum(r["1"]["volumes"] for r in loaded.record["runs"].values())
    assert told["unsteady volumes"] == f"4 of {total} left out"
    both = load_bids(dataset, scrub=2.0, **chosen).record
    run = both["runs"]["01"]["1"]
    assert (run["unsteady"], run["scrubbed"]) == (2, 1)
    told = dict(describe_record(both))["scrubbing"]
    assert told == f"above 2 mm: 2 of {total} volumes"


def test_the_record_names_what_preprocessed_the_images_and_the_mask(dataset):
    about = dataset / "derivatives" / "fmriprep" / "dataset_description.json"
    content = json.loads(about.read_text())
    made = [{"Name": "fMRIPrep", "Version": "25.1.3"}]
    about.write_text(json.dumps({**content, "GeneratedBy": made}))
    told = dict(describe_record(load_bids(dataset).record))
    assert told["images"] == "output of fMRIPrep 25.1.3, task objects, space T1w"
    assert told["mask"] == "voxels in the brain masks of all runs of each subject"
    about.write_text("{")
    inside = load_bids(dataset, derivatives="derivatives/fmriprep")
    told = dict(describe_record(inside.record))
    assert told["images"] == "preprocessed images, task objects, space T1w"
    raw = dict(describe_record(load_bids(dataset, derivatives=None).record))
    assert raw["images"] == "raw images, task objects"
    assert raw["mask"].startswith("computed from the images: voxels in the masks of at")


def test_nearest_file_wins_by_the_inheritance_principle(dataset):
    top = dataset / "task-objects_events.tsv"
    top.write_text("onset\tduration\ttrial_type\n0\t5\tfrom-the-top\n")
    subject = dataset / "sub-01" / "sub-01_task-objects_events.tsv"
    subject.write_text("onset\tduration\ttrial_type\n0\t5\tfrom-the-subject\n")
    events(dataset, "01", 2).unlink()
    events(dataset, "02", 2).unlink()
    loaded = load_bids(dataset)
    here = loaded["01"]
    assert "from-the-subject" not in here.labels[here.runs == 1]
    assert set(here.labels[here.runs == 2]) == {"from-the-subject"}
    other = loaded["02"]
    assert set(other.labels[other.runs == 2]) == {"from-the-top"}
    # at one level, the name with more entities is nearer
    func = dataset / "sub-01" / "func" / "sub-01_task-objects_events.tsv"
    func.write_text("onset\tduration\ttrial_type\n0\t5\tless-specific\n")
    here = load_bids(dataset)["01"]
    assert "less-specific" not in here.labels[here.runs == 1]
    assert set(here.labels[here.runs == 2]) == {"less-specific"}


# surfaces


def test_cifti_series_of_fmriprep_are_read(dataset, study):
    rng = np.random.default_rng(0)
    axis = nib.cifti2.BrainModelAxis.from_mask(
        np.ones(30, bool), name="CIFTI_STRUCTURE_CORTEX_LEFT"
    )
    for path in list(dataset.rglob("*desc-preproc_bold.nii.gz")):
        n = nib.load(path).shape[3]
        series = nib.cifti2.SeriesAxis(0, 2.5, n)
        image = nib.Cifti2Image(
            rng.normal(size=(n, 30)).astype(np.float32), header=(series, axis)
        )
        stem = path.name.split("_space-")[0]
        nib.save(image, path.with_name(f"{stem}_space-fsLR_den-91k_bold.dtseries.nii"))
    loaded = load_bids(dataset, space="fsLR")
    assert loaded[0].space.kind == "cifti"
    assert loaded[0].data().shape == (24, 30)
    assert loaded[0].labels.tolist() == study[0].labels.tolist()


def test_both_hemispheres_of_a_surface_are_read(dataset, study):
    rng = np.random.default_rng(1)
    for path in list(dataset.rglob("*desc-preproc_bold.nii.gz")):
        n = nib.load(path).shape[3]
        stem = path.name.split("_space-")[0]
        for side, size in (("L", 12), ("R", 10)):
            arrays = [
                nib.gifti.GiftiDataArray(
                    rng.normal(size=size).astype(np.float32),
                    intent="NIFTI_INTENT_TIME_SERIES",
                )
                for _ in range(n)
            ]
            name = f"{stem}_hemi-{side}_space-fsaverage5_bold.func.gii"
            nib.save(nib.GiftiImage(darrays=arrays), path.with_name(name))
    loaded = load_bids(dataset, space="fsaverage5", confounds=None)
    assert loaded[0].space.kind == "surface"
    assert loaded[0].data().shape == (24, 22)
    assert loaded[0].labels.tolist() == study[0].labels.tolist()


def _confounds(dataset):
    return sorted(dataset.rglob("sub-01*_desc-confounds_timeseries.tsv"))[0]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("n/a", "'csf' is nan in row 5"),
        ("1e999", "'csf' is inf in row 5|contains infinity"),
        ("=cmd|'/C calc'!A0", "not all numbers|'csf' is =cmd.* in row 5"),
    ],
)
@pytest.mark.parametrize("confounds", [["csf"], "simple"])
def test_confounds_with_gaps_are_not_filled_in_silence(
    dataset, cell, message, confounds
):
    path = _confounds(dataset)
    names, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    for name in ("csf", "white_matter"):
        rows[4][names.index(name)] = cell
    path.write_text("\n".join("\t".join(row) for row in (names, *rows)) + "\n")
    with pytest.raises(StudyError, match=message):
        load_bids(dataset, subjects=["01"], confounds=confounds)


@pytest.mark.parametrize("n_more", [-3, 1])
@pytest.mark.parametrize("options", [{"confounds": None, "scrub": 9.0}, {}])
def test_confounds_of_another_length_are_refused(dataset, n_more, options):
    path = _confounds(dataset)
    lines = path.read_text().splitlines()
    lines = lines[:n_more] if n_more < 0 else [*lines, lines[-1]]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(StudyError, match=r"its confounds have shape"):
        load_bids(dataset, subjects=["01"], **options)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 5000])
def test_a_sidecar_of_endless_depth_is_refused(dataset, text):
    for path in dataset.rglob("*_bold.json"):
        path.write_text(text)
    with pytest.raises(StudyError, match="not readable JSON"):
        load_bids(dataset, confounds=None)


def test_an_open_dataset_stands_for_its_folder(untouched):
    dataset = open_dataset(untouched)
    assert open_dataset(dataset) is dataset
    assert load_bids(dataset).ids == ["01", "02", "03"]


def test_a_task_without_events_can_be_a_film(dataset):
    for path in dataset.rglob("*_events.tsv"):
        path.unlink()
    loaded = load_bids(dataset, films="runs")
    assert loaded["02"].labels is None
    assert loaded["02"].stimuli[:2].tolist() == ["run-1@0.00", "run-1@2.50"]
    assert set(loaded["02"].films) == {"run-1", "run-2"}
    assert "single volumes" in dict(describe_record(loaded.record)).values()
    alone = load_bids(dataset, label=None, films="runs", subjects=["02"])
    np.testing.assert_array_equal(alone[0].stimuli, loaded[1].stimuli)
    np.testing.assert_array_equal(alone[0].data(), loaded[1].data())
    assert load_bids(dataset, label=None)[0].stimuli is None


def test_runs_without_any_events_name_the_way_out(dataset):
    for path in dataset.rglob("*_events.tsv"):
        path.unlink()
    with (
        pytest.warns(UserWarning, match="no events file and is left out"),
        pytest.raises(StudyError, match=r"No run .* has an events .*label=None"),
    ):
        load_bids(dataset)


def test_files_that_are_no_magnitude_image_of_a_subject_are_passed_over(dataset):
    path = bold(dataset)
    shutil.copy(path, path.with_name("task-objects_run-9_bold.nii.gz"))
    phase = path.name.replace("_space", "_part-phase_space")
    shutil.copy(path, path.with_name(phase))
    assert load_bids(dataset)["01"].run_ids == [1, 2]


def test_two_files_for_one_run_are_named(dataset):
    path = bold(dataset)
    shutil.copy(path, path.with_name(path.name.replace("_run", "_dir-LR_run")))
    with pytest.raises(StudyError, match=r"'01' has 2 files for run 1:.*LR"):
        load_bids(dataset)


def test_images_of_several_kinds_are_refused(dataset):
    path = bold(dataset)
    series = path.name.replace("_run-1", "_run-3").replace(".nii.gz", ".dtseries.nii")
    path.with_name(series).write_bytes(b"")
    shutil.copy(events(dataset), events(dataset, run=3))
    with pytest.raises(StudyError, match="of several kinds: cifti, volume"):
        load_bids(dataset)


def test_sidecars_without_a_time_are_passed_over(dataset):
    for path in dataset.rglob("*_bold.json"):
        path.write_text("{}")
    (dataset / "task-objects_notbold.json").write_text("no JSON")
    assert load_bids(dataset).record["runs"]["01"]["1"]["t_r"] == 2.5  # the header's
    image = nib.load(bold(dataset))
    image.header.set_zooms((*image.header.get_zooms()[:3], 0.0))
    silent = nib.Nifti1Image(image.get_fdata(), image.affine, image.header)
    nib.save(silent, bold(dataset))
    with pytest.raises(StudyError, match="no repetition time, neither in a sidecar"):
        load_bids(dataset)
    (dataset / "task-objects_bold.json").write_text("[]")
    with pytest.raises(StudyError, match="holds no JSON object"):
        load_bids(dataset)


def test_scrubbing_that_leaves_nothing_is_refused(dataset):
    (path, *_) = sorted(dataset.rglob("sub-01*confounds_timeseries.tsv"))
    table = pd.read_csv(path, sep="\t")
    table["framewise_displacement"] = 9.0
    table.to_csv(path, sep="\t", index=False, na_rep="n/a")
    with pytest.raises(StudyError, match="scrubbing leaves no volume of this run"):
        load_bids(dataset, scrub=0.5, confounds=None)


def test_confounds_of_an_odd_type_are_refused(untouched):
    with pytest.raises(InputError, match="a list or None"):
        load_bids(untouched, confounds=3)


def test_one_hemisphere_is_a_surface_by_itself(dataset):
    left = SurfaceSpace({"CortexLeft": 7})
    for path in (dataset / FMRIPREP).rglob("*_bold.nii.gz"):
        n_volumes = nib.load(path).shape[3]
        stem = path.name.split("_space")[0]
        values = np.random.default_rng(0).normal(size=(n_volumes, 7))
        new = path.with_name(f"{stem}_hemi-L_space-fsaverage5_bold.func.gii")
        nib.save(left.to_image(values), new)
        path.unlink()
    study = load_bids(dataset, confounds=None)
    assert study["02"].space.kind == "surface"
    assert study["02"].n_voxels == 7


def bids_dataset(folder):
    study = simulate_study(
        n_subjects=2,
        categories=3,
        n_runs=2,
        n_voxels=120,
        settings=SimulationSettings(duration=10.0),
    )
    return study.to_bids(folder / "bids", raw=False), study


def add_button_presses(folder):
    for path in folder.rglob("*_events.tsv"):
        table = pd.read_csv(path, sep="\t")
        presses = table.assign(
            onset=table["onset"] + 4.0, duration=0.0, trial_type="button_press"
        )
        pd.concat([table, presses]).to_csv(path, sep="\t", index=False, na_rep="n/a")


def events_of(folder):
    return sorted(folder.rglob("*_events.tsv"))


def test_one_label_to_ignore_is_ignored(tmp_path):
    folder, study = bids_dataset(tmp_path)
    add_button_presses(folder)
    loaded = load_bids(folder, ignore="button_press")
    assert loaded.categories == study.categories
    assert loaded[0].labels.tolist() == study[0].labels.tolist()


def test_button_presses_are_no_category_and_are_named(tmp_path):
    folder, study = bids_dataset(tmp_path)
    add_button_presses(folder)
    n_presses = sum(len(p.read_text().splitlines()) - 1 for p in events_of(folder)) // 2
    told = rf"left out: button_press \({n_presses}\)\. Keep one .* keep="
    with pytest.warns(UserWarning, match=told):
        loaded = load_bids(folder)
    assert loaded.categories == study.categories
    assert loaded.record["left_out"] == {"button_press": n_presses}
    kept = load_bids(folder, keep="button_press", ignore=study.categories)
    assert kept.categories == ["button_press"]


def test_a_label_to_ignore_adds_to_those_that_are_no_stimuli(tmp_path):
    folder, study = bids_dataset(tmp_path)
    for path in events_of(folder):
        rows = "999\t1\tRest\n1000\t1\tfixation\n1001\tn/a\tresponse\n"
        header, *lines = path.read_text().splitlines()
        width = len(header.split("\t")) - 3
        rows = rows.replace("\n", "\tn/a" * width + "\n")
        path.write_text("\n".join([header, *lines]) + "\n" + rows)
    first, *others = study.categories
    loaded = load_bids(folder, ignore=[first, "response"])
    assert loaded.categories == others
    assert set(loaded.record["left_out"]) == {first, "Rest", "fixation", "response"}


def test_button_presses_take_no_volumes_from_blocks(tmp_path):
    folder, study = bids_dataset(tmp_path)
    add_button_presses(folder)
    with pytest.warns(UserWarning, match="volumes lie under events of more than one"):
        loaded = load_bids(folder, keep="button_press")
    assert loaded[0].labels.tolist() == study[0].labels.tolist()
    assert loaded.record["runs"]["01"]["1"]["shared_volumes"] > 0
