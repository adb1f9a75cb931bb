"""The BIDS App: levels, exit codes, and output that the official validator accepts."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from numpy.testing import assert_allclose

import brainweave as bw

METHOD = (
    *("--n-components", "2", "--energy", "0.7", "--task", "objects"),
    *("--bids-param", "dtype=float64"),
)
MODEL = "task-objects_desc-gdm_model.safetensors"


@pytest.fixture(scope="module")
def bids(tmp_path_factory, execute):
    folder = tmp_path_factory.mktemp("bids") / "data"
    study = bw.simulate_study(
        n_subjects=3, n_voxels=(60, 80), categories=3, n_runs=2, n_nuisance=20
    )
    study.to_bids(folder, raw=True, derivatives=False, image_dtype="float32")
    return folder


@pytest.fixture(scope="module")
def derivative(bids, execute):
    """What one process per subject, and one for the group, wrote."""
    out = bids.parent / "out"
    for id in ("01", "sub-02", "03"):
        label = ("--participant-label", id)
        execute("run", bids, out, "participant", *label, *METHOD, "-q")
    execute("run", bids, out, "group", *METHOD, "-q")
    return out


def test_separate_processes_give_the_model_of_one_fit(bids, derivative):
    study = bw.load_bids(bids, task="objects", dtype="float64")
    loaded, want = bw.load(derivative / MODEL), bw.GDM(2, energy=0.7).fit(study)
    assert_allclose(loaded.eigenvalues_, want.eigenvalues_, rtol=1e-10)
    for a, b in zip(loaded.coef_, want.coef_, strict=True):
        assert_allclose(a, b, rtol=0, atol=1e-10)
    for a, b in zip(loaded.maps_, want.maps_, strict=True):
        assert_allclose(a.weights, b.weights, rtol=0, atol=1e-10)
        assert_allclose(a.patterns, b.patterns, rtol=0, atol=1e-10)
    X = [s.data() for s in study]
    for a, b in zip(loaded.transform(X), want.transform(X), strict=True):
        assert_allclose(a, b, rtol=0, atol=1e-10)


def test_the_derivative_describes_itself(bids, derivative):
    about = json.loads((derivative / "dataset_description.json").read_text())
    assert about["DatasetType"] == "derivative"
    assert about["GeneratedBy"][0]["Name"] == "brainweave"
    assert about["SourceDatasets"][0]["URL"] == bids.resolve().as_uri()
    sidecar = json.loads((derivative / MODEL).with_suffix(".json").read_text())
    assert sidecar["Subjects"] == ["sub-01", "sub-02", "sub-03"]
    stem = derivative / "sub-02" / "func" / "sub-02_task-objects_desc-"
    basis = json.loads(Path(f"{stem}brainweave_basis.json").read_text())
    assert basis["Energy"] == 0.7
    assert basis["Options"]["task"] == "objects"
    table = Path(f"{stem}gdm_timeseries.tsv").read_text().splitlines()
    assert table[0] == "feature0\tfeature1"
    assert len(table) - 1 == basis["NumberOfSamples"]
    assert (derivative / MODEL).with_suffix(".html").is_file()


def test_the_official_validator_accepts_the_derivative(derivative):
    validator = Path(sys.executable).with_name("bids-validator-deno")
    if not validator.exists():
        pytest.skip("the official validator (bids-validator-deno) is not installed")
    done = subprocess.run(
        [validator, derivative, "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    issues = json.loads(done.stdout)["issues"]["issues"]
    assert [i for i in issues if i["severity"] == "error"] == []
    assert done.returncode == 0


def test_bases_that_are_done_are_kept(bids, derivative, call):
    basis = next(derivative.glob("sub-01/func/*_basis.safetensors"))
    before = basis.stat().st_mtime_ns
    one = ("--participant-label", "01", "-q")
    call("run", bids, derivative, "participant", *METHOD, *one)
    assert basis.stat().st_mtime_ns == before
    call("run", bids, derivative, "participant", *METHOD, *one, "--overwrite")
    assert basis.stat().st_mtime_ns > before


def test_a_subject_that_fails_is_named_and_the_others_are_done(bids, tmp_path, execute):
    broken = tmp_path / "data"
    shutil.copytree(bids, broken)
    for image in broken.glob("sub-02/func/*_bold.nii.gz"):
        image.write_bytes(image.read_bytes()[:2000])
    labels = ("--participant-label", "01", "02")
    done = execute(
        "run", broken, tmp_path / "out", "participant", *METHOD, *labels, "-q", code=1
    )
    assert "1 of 2 subjects failed, the others are done" in done.stderr
    assert "sub-02: " in done.stderr
    assert [p.name for p in tmp_path.glob("out/sub-*")] == ["sub-01"]
    assert list(tmp_path.glob("out/sub-01/func/*.safetensors"))


def test_wrong_usage_of_the_app(bids, derivative, tmp_path, call):
    def said(*arguments):
        return call("run", *arguments, code=2)[1]

    assert "no subject '99'" in said(
        bids, tmp_path, "participant", "--participant-label", "99"
    )
    assert "Run the level participant first" in said(bids, tmp_path / "n", "group")
    assert "must not be BIDS_DIR" in said(bids, bids, "participant")
    assert "--match needs a study folder" in said(
        bids, tmp_path, "group", "--match", "truncate"
    )
    assert "stored for the linear kernel" in said(
        bids, derivative, "group", *METHOD, "--kernel", "gaussian"
    )
    sleep = (*METHOD[:4], "--task", "sleep")
    error = call("run", bids, tmp_path, "participant", *sleep, code=1)[1]
    assert "3 of 3 subjects failed" in error
    assert "sleep" in error
