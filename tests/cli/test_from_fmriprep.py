"""The whole way from fMRIPrep's output to a report, with defects of real studies."""

import json

import nibabel as nib
import numpy as np
import pytest

import brainweave as bw
from bids_trees import messy_fmriprep
from brainweave.cli.console import run


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return messy_fmriprep(tmp_path_factory.mktemp("fmriprep") / "data", n_subjects=4)


@pytest.fixture(scope="module")
def study(tree):
    folder = tree.parent / "study"
    words = ("convert", tree, folder, "--task", "objects", "--ignore", "button_press")
    assert run([*map(str, words), "-q"]) == 0
    return folder


def test_the_sequence_of_the_readme(tree, tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, said = call("convert", tree, "STUDY", code=1)
    assert said.count("Error") == 1
    assert "'objects', 'words'. Choose one with task=" in said
    out, said = call("convert", tree, "STUDY", "--task", "objects")
    assert "left out: button_press (132). Keep one as a category with keep=" in said
    assert "4 subjects, 144–216 samples, 145–148 voxels" in out
    for line in (
        f"images: output of brainweave {bw.__version__}, task objects, space MNI",
        "samples: single volumes, 5 s after the stimulus",
        "confounds: simple: 31 columns",
        "repetition time: 2.5 s",
        "mask: voxels in the brain masks of all runs of each subject",
        "missing runs: sub-03: 2",
        "labels: column trial_type; events left out: button_press (132)",
    ):
        assert line in out
    shown, _ = call("info", "STUDY")
    assert "missing runs: sub-03: 2" in shown
    assert "confounds: simple: 31 columns" in shown

    out, said = call("compare", "STUDY", "-o", "RESULTS", "--n-components", 2)
    rows = [line[: line.index(")") + 1] for line in out.splitlines()[1:5]]
    assert rows == [
        "gdm (held-out)",
        "without alignment (held-out)",
        "gdm (joint)",
        "without alignment (joint)",
    ]
    # four subjects: no p of a test over subjects can be small
    last = out.splitlines()[-1]
    assert last.startswith("With gdm, ")
    assert "; chance, the most frequent category, is " in last
    assert last.endswith("too few subjects to tell them apart.")
    assert "Methods that compare subjects voxel by voxel are scored on" in said
    results = bw.Comparison.load(tmp_path / "RESULTS").results
    assert results["gdm (held-out)"].mean > results["gdm (held-out)"].chance + 0.1
    assert results["without alignment (joint)"].design["voxels"] == "common"

    fit = ("fit", "STUDY", "-o", "model.safetensors", "--n-components", 2)
    assert "Alignment worked" in call(*fit)[0]
    out, _ = call("transform", "model.safetensors", "STUDY", "SHARED")
    assert "792 of 792 samples took part in the alignment" in out
    call(
        *("report", "report.html", "--study", "STUDY", "--results", "RESULTS"),
        *("--model", "model.safetensors", "-q"),
    )
    page = (tmp_path / "report.html").read_text()
    for text in (
        "Data and preprocessing",
        "31 columns",
        "missing runs",
        "interval over",
    ):
        assert text in page


def test_the_bids_app_keeps_what_was_done(tree, tmp_path, call):
    options = ("--task", "objects", "--ignore", "button_press", "--confounds", "motion")
    out = tmp_path / "out"
    call("run", tree, out, "participant", *options, "-q")
    call("run", tree, out, "group", "--task", "objects", "--n-components", 2, "-q")
    stem = "sub-03/func/sub-03_task-objects_space-MNI152NLin2009cAsym_desc-"
    basis = json.loads((out / f"{stem}brainweave_basis.json").read_text())
    assert basis["Preprocessing"]["settings"]["ignore"] == ["button_press"]
    assert basis["Preprocessing"]["confounds"][0].startswith(("rot", "trans"))
    table = (out / f"{stem}gdm_timeseries.tsv").read_text().splitlines()
    assert table[0].split("\t")[-3:] == ["label", "run", "aligned"]
    assert {line.split("\t")[-3] for line in table[1:]} == {"face", "house", "shoe"}
    (page,) = out.glob("*_model.html")
    assert "sub-03: 2" in page.read_text()  # the missing run


def test_equal_numbers_of_voxels_are_not_the_same_voxels(study, tmp_path, call):
    whole = bw.Study.open(study)
    subjects = []
    for i, s in enumerate(whole):
        mask = np.array(s.space.mask)
        extra = s.n_voxels - 145
        away = np.argwhere(mask)[20 + 3 * i : 20 + 3 * i + extra]
        keep = np.ones(s.n_voxels, bool)
        keep[20 + 3 * i : 20 + 3 * i + extra] = False
        mask[tuple(away.T)] = False
        image = nib.Nifti1Image(mask.astype(np.uint8), s.space.affine)
        space = type(s.space)(image)
        subjects.append(
            bw.Subject(s.id, s.data()[:, keep], labels=s.labels, space=space)
        )
    bw.Study(subjects).save(tmp_path / "s")
    _, said = call(
        *("compare", tmp_path / "s", "--method", "none", "-o", tmp_path / "e"),
        *("--protocol", "joint", "--no-report", "-q"),
    )
    assert "The masks differ" in said


def test_a_held_out_half_is_not_marked_as_aligned(study, tmp_path, call):
    first, second = bw.Study.open(study).split_halves()
    first.save(tmp_path / "first")
    second.save(tmp_path / "second")
    model = tmp_path / "m.safetensors"
    call("fit", tmp_path / "first", "-o", model, "--n-components", 2, "-q")
    for half, aligned in (("first", True), ("second", False)):
        call("transform", model, tmp_path / half, tmp_path / f"s-{half}", "-q")
        shared = bw.Study.open(tmp_path / f"s-{half}")
        assert [set(s.aligned.tolist()) for s in shared] == [{aligned}] * 4
    # so that the half that did not align can be scored, and the other cannot
    score = ("--method", "none", "-o", tmp_path / "e", "--no-report", "-q")
    call("compare", tmp_path / "s-second", *score)
    call("compare", tmp_path / "s-first", *score, code=2)


def test_match_says_what_it_drops(study, tmp_path, call):
    _, said = call(
        *("fit", study, "-o", tmp_path / "m.safetensors", "--method", "detsrm"),
        *("--n-components", 2, "--match", "truncate"),
    )
    assert "--match truncate: 576 of 792 samples used" in said
    assert "sub-01 72, sub-02 72, sub-04 72" in said


def test_regions_and_searches_are_methods(study, tmp_path, call):
    space = bw.Study.open(study)[0].space
    labels = np.ones(space.mask.shape, np.int16)
    labels[labels.shape[0] // 2 :] = 2
    nib.save(nib.Nifti1Image(labels, space.affine), tmp_path / "atlas.nii.gz")
    model = tmp_path / "m.safetensors"
    out, _ = call(
        *("fit", study, "-o", model, "--n-components", 2, "-q"),
        *("--parcels", tmp_path / "atlas.nii.gz"),
    )
    assert "Parcelwise of 4 subjects, 4 shared features" in out
    out, _ = call(
        *("fit", study, "-o", model, "--n-components", 2, "--searchlight", 40, "-q"),
        *("--method", "paper-gdm", "--param", "energy=0.5"),
    )
    assert "Searchlight of 4 subjects" in out
    settings = ("--param", "energies=[0.5, 0.9]", "-q")
    out, _ = call("fit", study, "-o", model, "--method", "gdmcv", *settings)
    assert "GDM of 4 subjects" in out
    assert bw.load(model).energy in (0.5, 0.9)


def test_a_search_calls_its_score_what_it_is(study, tmp_path, call):
    out, _ = call(
        *("fit", study, "-o", tmp_path / "m.safetensors", "--method", "gdmcv", "-q"),
        *("--param", "energies=[0.01, 0.02]"),
    )
    assert "chosen on these data" in out


# -- wrong inputs that are not the obvious ones ----------------------------------------

TASK = ("--task", "objects")
WRONG = [
    # arguments after "convert TREE OUT" (or a command), exit code, what is said
    ((), 1, "On the command line: --task"),
    (("--task", "object"), 1, "'objects'"),
    ((*TASK, "--space", "T1w"), 1, "MNI152NLin2009cAsym"),
    ((*TASK, "--participant-label", "07"), 1, "07"),
    ((*TASK, "--participant-label", "01", "--participant-label", "07"), 1, "07"),
    ((*TASK, "--param", "label=category"), 1, "category"),
    ((*TASK, "--samples", "betas"), 2, "--samples"),
    ((*TASK, "--param", "overlap=first"), 2, "no option 'overlap'"),
    ((*TASK, "--confounds", "everything"), 1, "everything"),
    ((*TASK, "--confounds", "simple", "--confounds", "motion"), 1, "'simple'"),
    ((*TASK, "--param", "scrub=0"), 2, "scrub"),
    ((*TASK, "--param", "scrub=0.000001"), 1, "scrubbed"),
    ((*TASK, "--mask", "brain.nii.gz"), 2, "own, common, epi or an image file"),
    ((*TASK, "--smoothing-fwhm", "4mm"), 2, "'--smoothing-fwhm'"),
    ((*TASK, "--smoothing-fwhm", "-4"), 2, "smoothing"),
    ((*TASK, "--labels", "x.tsv"), 2, "There is no file 'x.tsv'"),
    ((*TASK, "--param", "space=x", "--space", "y"), 2, "--space and by"),
    ((*TASK, "--param", "colour=red"), 2, "load_bids has no option 'colour'"),
]


@pytest.mark.parametrize(
    ("options", "code", "said"), WRONG, ids=[" ".join(w[0]) or "none" for w in WRONG]
)
def test_wrong_conversions_are_one_sentence(tree, tmp_path, call, options, code, said):
    _, error = call("convert", tree, tmp_path / "s", *options, code=code)
    lines = [line for line in error.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, error
    assert said in lines[0]
    assert "should not happen" not in error
    assert not (tmp_path / "s").exists()


WRONG_USE = [
    (("fit", "{study}", "--parcels", "schaefer-150"), 1, "100, 200"),
    (("fit", "{study}", "--parcels", "atlas.nii"), 1, "neither a file nor an atlas"),
    (("fit", "{study}", "--parcels", "{study}/study.json"), 1, "study.json"),
    (("fit", "{study}", "--searchlight", "0"), 2, "radius of Searchlight must be > 0"),
    (("fit", "{study}", "--searchlight", "5", "--parcels", "x"), 2, "choose one"),
    (("fit", "{study}", "--searchlight", "1"), 2, "X[0] is sub-01."),
    (("report", "r.html", "--results", "{study}"), 2, "with results"),
    (("run", "{tree}", "o", "participant", "--method", "gdmcv"), 2, "brainweave fit"),
    (("run", "{tree}", "o", "participant", "--mask", "common"), 2, "--mask common"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "said"), WRONG_USE, ids=[" ".join(w[0]) for w in WRONG_USE]
)
def test_wrong_use_is_one_sentence(
    tree, study, tmp_path, call, monkeypatch, arguments, code, said
):
    monkeypatch.chdir(tmp_path)
    filled = [a.format(study=study, tree=tree) for a in arguments]
    _, error = call(*filled, code=code)
    assert said in error
    assert error.count("Error: ") == 1
    assert "should not happen" not in error
