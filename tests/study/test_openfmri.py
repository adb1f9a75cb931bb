"""The old OpenfMRI layout, on the real mini dataset and on broken copies of it."""

import shutil

import nibabel as nib
import numpy as np
import pytest
from numpy.testing import assert_allclose

from brainweave._core.exceptions import InputError, StudyError
from brainweave.study import Cleaning, EventRules, Sampling
from brainweave.study.formats.events import Events, plan_samples
from brainweave.study.formats.openfmri import load_openfmri

BRAIN = "masks/25mm/brain.nii.gz"
WHOLE = {"sampling": Sampling(keep_rest=True), "cleaning": Cleaning(high_pass=None)}


@pytest.fixture
def haxby(mini_haxby):
    return mini_haxby / "haxby2001"


@pytest.fixture
def copy(haxby, tmp_path):
    """A copy that may be changed: two subjects, the second without run 3."""
    root = tmp_path / "ds"
    keep = ("task001_run001", "task001_run002", "task001_run003")
    for id in ("sub001", "sub002"):
        for run in keep:
            shutil.copytree(haxby / "sub001/BOLD" / run, root / id / "BOLD" / run)
            onsets = f"model/model001/onsets/{run}"
            shutil.copytree(haxby / "sub001" / onsets, root / id / onsets)
        shutil.copytree(haxby / "sub001/masks", root / id / "masks")
    shutil.copytree(haxby / "models", root / "models")
    shutil.copy(haxby / "scan_key.txt", root)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    shutil.rmtree(root / "sub002/BOLD/task001_run003")
    return root


def load(root, **options):
    options = {"bold": "bold_25mm.nii.gz", "mask": BRAIN, **options}
    return load_openfmri(root, **options)


def test_real_data_have_the_right_shape_labels_and_runs(haxby, mini_haxby):
    study = load(haxby, sampling=Sampling(keep_rest=True, hrf_delay=0.0))
    assert study.name == "haxby2001"
    assert study.ids == ["sub001"]
    subject = study[0]
    assert subject.samples.shape == (12 * 121, 129)
    assert subject.is_lazy
    # the same labels, volume by volume, come with the data in another file
    rows = (mini_haxby / "attributes_literal.txt").read_text().splitlines()
    labels, chunks = zip(*(row.split() for row in rows), strict=True)
    assert [label or "rest" for label in subject.labels] == list(labels)
    assert (subject.runs - 1).tolist() == [int(chunk) for chunk in chunks]
    assert subject.onsets[122] == 2.5


def test_real_samples_are_the_masked_volumes(haxby):
    subject = load(haxby, runs=[1, 2], **WHOLE)[0]
    image = nib.load(haxby / "sub001/BOLD/task001_run002/bold_25mm.nii.gz")
    mask = nib.load(haxby / "sub001" / BRAIN).get_fdata() > 0
    assert_allclose(subject.data()[121:], image.get_fdata()[mask].T, rtol=1e-6)


def test_events_become_volumes_blocks_or_trials(haxby):
    volumes = load(haxby)[0]
    assert volumes.n_samples == 12 * 8 * 9
    assert volumes.onsets[0] == 20.0  # 15 s, and 5 s of delay
    blocks = load(haxby, samples="blocks")[0]
    assert blocks.n_samples == 12 * 8
    assert_allclose(blocks.data()[0], volumes.data()[:9].mean(axis=0), rtol=1e-5)
    trials = load(haxby, samples="trials", runs=[1])[0]
    assert trials.n_samples == 8
    assert len(trials.categories) == 8


def test_masks_confounds_and_cleaning(haxby):
    small = load(haxby, mask="masks/25mm/gray.nii.gz")[0]
    assert small.n_voxels == 28
    computed = load(haxby, mask="epi", runs=[1])[0]
    assert 50 < computed.n_voxels < 300
    common = load(haxby, mask=haxby / "sub001" / BRAIN)[0]
    assert common.n_voxels == 129
    own = load(haxby, mask={"sub001": haxby / "sub001" / BRAIN})[0]
    assert own.n_voxels == 129
    cleaned = load(
        haxby,
        runs=[1],
        sampling=Sampling(keep_rest=True),
        confounds="bold_moest.txt",
        cleaning=Cleaning(detrend=True),
    )[0]
    motion = np.loadtxt(haxby / "sub001/BOLD/task001_run001/bold_moest.txt")
    motion -= motion.mean(axis=0)
    values = cleaned.data().astype(float)
    correlation = np.corrcoef(values[:, 0], motion[:, 3])[0, 1]
    assert abs(correlation) < 0.2
    assert_allclose(values.mean(axis=0), 0, atol=1e-3)


def test_trial_models_hold_the_confounds_as_those_of_bids_do(haxby):
    named = {"confounds": "bold_moest.txt", "samples": "trials"}
    found = load(haxby, runs=[1], cleaning=Cleaning(high_pass=0.005), **named)
    volumes = load(haxby, runs=[1], **WHOLE)[0].data()
    motion = np.loadtxt(haxby / "sub001/BOLD/task001_run001/bold_moest.txt")
    folder = haxby / "sub001/model/model001/onsets/task001_run001"
    rows = [
        (*map(float, line.split()[:2]), file.stem)
        for file in sorted(folder.glob("cond*.txt"))
        for line in file.read_text().splitlines()
    ]
    model = {"samples": "trials", "confounds": motion, "high_pass": 0.005}
    plan = plan_samples(Events.from_rows(rows), len(volumes), 2.5, **model)
    assert_allclose(found[0].data(), plan.apply(volumes), atol=1e-3)
    assert found.record["settings"]["high_pass"] == 0.005
    assert found.record["runs"]["sub001"]["1"]["confounds"] == motion.shape[1]


def test_a_subject_may_lack_a_run(copy):
    study = load(copy)
    assert study.summary()["runs"].tolist() == [3, 2]
    assert study["sub002"].run_ids == [1, 2]
    assert load(copy, runs=[2])["sub002"].run_ids == [2]


def test_a_run_without_onsets_is_named(copy):
    shutil.rmtree(copy / "sub001/model/model001/onsets/task001_run002")
    with pytest.raises(StudyError, match=r"task001_run002' has no cond.*runs=\[...\]"):
        load(copy)
    assert load(copy, runs=[1, 3], subjects=["sub001"])[0].run_ids == [1, 3]


def test_an_empty_condition_is_a_condition_the_run_lacks(copy):
    (copy / "sub001/model/model001/onsets/task001_run001/cond001.txt").write_text("")
    subject = load(copy)["sub001"]
    assert "house" not in subject.labels[subject.runs == 1]
    assert "house" in subject.labels[subject.runs == 2]


def test_conditions_can_be_ignored(copy):
    assert (
        "scrambledpix"
        not in load(copy, events=EventRules(ignore="scrambledpix")).categories
    )


def test_early_condition_keys_without_task_are_read(copy):
    key = copy / "models/model001/condition_key.txt"
    key.write_text(key.read_text().replace("task001 ", ""))
    assert "face" in load(copy).categories


def test_onsets_that_cannot_be_used_are_named(copy):
    path = copy / "sub001/model/model001/onsets/task001_run001/cond001.txt"
    path.write_text("12.0\n")
    with pytest.raises(
        StudyError, match=r"cond001.txt', line 1: '12.0' is not an onset"
    ):
        load(copy)
    path.unlink()
    (path.parent / "cond099.txt").write_text("1 2 1\n")
    with pytest.raises(StudyError, match=r"cond099.txt' is of a condition that"):
        load(copy)


def test_the_repetition_time_is_that_of_the_scan_key(copy):
    assert load(copy, sampling=Sampling(keep_rest=True))[0].onsets[1] == 2.5
    (copy / "scan_key.txt").write_text("TR 5.0\n")
    with pytest.raises(StudyError, match=r"scan_key.txt' is 5 s, but the header.*2.5"):
        load(copy, sampling=Sampling(keep_rest=True))
    assert load(copy, sampling=Sampling(keep_rest=True, t_r=3.0))[0].onsets[1] == 3.0
    with pytest.raises(StudyError, match="5 of 8 events lie outside the run"):
        load(copy, sampling=Sampling(t_r=1.0))
    (copy / "scan_key.txt").unlink()
    assert load(copy, sampling=Sampling(keep_rest=True))[0].onsets[1] == 2.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"bold": "bold.nii.gz"},
            r"no 'bold.nii.gz' in .*which has bold_1slice.nii.gz",
        ),
        ({"task": 2}, "names no condition of task 2"),
        ({"subjects": ["sub009"]}, "no subject 'sub009'"),
        ({"runs": [9]}, r"no run of task 1 among \[9\]"),
        ({"mask": "masks/none.nii.gz"}, r"no file 'masks/none.nii.gz'"),
        (
            {"bold": "bold_1slice.nii.gz"},
            "has 40 x 20 x 1 voxels, its mask 6 x 10 x 10",
        ),
    ],
)
def test_what_is_not_there_is_named(copy, options, message):
    with pytest.raises(StudyError, match=message):
        load(copy, **options)


def test_other_folders_are_not_this_layout(tmp_path):
    with pytest.raises(StudyError, match="no folder"):
        load(tmp_path / "nowhere")
    (tmp_path / "models/model001").mkdir(parents=True)
    (tmp_path / "models/model001/condition_key.txt").write_text("task001 cond001 a")
    with pytest.raises(StudyError, match=r"no sub\*/BOLD/task001_run.*load_bids"):
        load(tmp_path)


def test_options_that_do_not_fit_are_refused(haxby):
    with pytest.raises(InputError, match="'betas'"):
        load(haxby, samples="betas")
    with pytest.raises(InputError, match="no mask for subject 'sub001'"):
        load(haxby, mask={"sub002": "x"})


def test_tables_that_are_no_text_or_no_time_are_named(tmp_path):
    (tmp_path / "scan_key.txt").write_text("TR 2..0\n")
    with pytest.raises(StudyError, match=r"scan_key.txt'.*is no time"):
        load_openfmri(tmp_path)
    (tmp_path / "scan_key.txt").write_bytes("TR 2.0".encode("utf-16"))
    with pytest.raises(StudyError, match=r"scan_key.txt' is not readable text"):
        load_openfmri(tmp_path)


def test_odd_onsets_and_a_scan_key_without_a_time(copy):
    (copy / "scan_key.txt").write_text("TE 30\n")
    assert load(copy).record["runs"]["sub001"]["1"]["t_r"] == 2.5  # the header's
    where = copy / "sub001/model/model001/onsets/task001_run001"
    first = sorted(where.glob("cond*.txt"))[0]
    good = first.read_text()
    first.write_text("\n" + good)
    assert load(copy, subjects="sub001").ids == ["sub001"]
    for wrong in ("15 -1 1", "inf 1 1", "15"):
        first.write_text(f"{wrong}\n{good}")
        with pytest.raises(StudyError, match="is not an onset and a duration of zero"):
            load(copy)
