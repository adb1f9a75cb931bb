"""simulate, convert, fetch and info, end to end."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import brainweave as bw


def test_simulate_writes_the_study_of_the_library(study):
    got = bw.Study.open(study, verify=True)
    want = bw.simulate_study(
        n_subjects=4,
        n_voxels=(90, 120),
        categories=["cat", "dog", "house"],
        n_runs=2,
        dtype="float64",
        n_nuisance=20,
    )
    assert got.ids == want.ids
    for a, b in zip(got, want, strict=True):
        assert_allclose(a.data(), b.data(), rtol=0, atol=0)
        assert a.labels.tolist() == b.labels.tolist()


def test_simulate_writes_its_configuration_which_gives_the_same_again(
    study, tmp_path, call
):
    config = study / "brainweave.toml"
    kept = tomllib.loads(config.read_text())["simulate"]
    assert kept["n_subjects"] == 4
    assert kept["random_state"] == 0
    call("simulate", tmp_path / "again", "--config", config, "-q")
    names = {p.name for p in study.iterdir()} - {"brainweave.toml", "study.json"}
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (study / name).read_bytes()


def test_convert_reads_bids(tmp_path, execute):
    execute(
        *("simulate", tmp_path / "bids", "--bids", "--n-subjects", 2, "-q"),
        *("--n-voxels", "60-80", "--categories", 3, "--n-runs", 2),
    )
    done = execute("convert", tmp_path / "bids", tmp_path / "st", "--task", "objects")
    assert "Writing subjects: done" in done.stderr
    assert done.stdout.startswith(str(tmp_path / "st"))
    got = bw.Study.open(tmp_path / "st")
    want = bw.load_bids(tmp_path / "bids", task="objects")
    assert got.ids == want.ids == ["01", "02"]
    for a, b in zip(got, want, strict=True):
        assert_allclose(a.data(), b.data())
        assert a.labels.tolist() == b.labels.tolist()
    kept = tomllib.loads((tmp_path / "st" / "brainweave.toml").read_text())
    assert kept["convert"]["task"] == "objects"


def test_convert_reads_matlab_with_labels(tmp_path, call):
    from scipy.io import savemat

    X = np.random.default_rng(0).normal(size=(2, 6, 5))  # subjects, samples, voxels
    savemat(tmp_path / "x.mat", {"x": X.transpose(2, 1, 0)})
    (tmp_path / "y.tsv").write_text("label\n" + "\n".join("aabbcc") + "\n")
    call(
        *("convert", tmp_path / "x.mat", tmp_path / "st"),
        *("--labels", tmp_path / "y.tsv", "--param", "samples_per_run=3", "-q"),
    )
    study = bw.Study.open(tmp_path / "st")
    assert_allclose(study[1].data(), X[1])
    assert study[0].labels.tolist() == list("aabbcc")
    assert study[0].runs.tolist() == [1, 1, 1, 2, 2, 2]
    shown, _ = call("info", tmp_path / "st")
    assert "images: MATLAB, x.mat" in shown
    assert "labels: y.tsv" in shown
    assert "sub-02: a 2, b 2, c 2" in shown


def test_labels_of_matlab_subjects_are_found_by_id(tmp_path, call):
    from scipy.io import savemat

    X = np.random.default_rng(0).normal(size=(2, 2, 5))
    savemat(tmp_path / "x.mat", {"x": X.transpose(2, 1, 0)})
    rows = "subject\tlabel\nsub-02\tc\nsub-02\td\nsub-01\ta\nsub-01\tb\n"
    (tmp_path / "y.tsv").write_text(rows)
    words = ("convert", tmp_path / "x.mat", tmp_path / "st", "-q", "--labels")
    call(*words, tmp_path / "y.tsv")
    study = bw.Study.open(tmp_path / "st")
    assert [s.labels.tolist() for s in study] == [["a", "b"], ["c", "d"]]
    (tmp_path / "z.tsv").write_text(rows.replace("sub-01", "sub-03"))
    _, said = call(*words, tmp_path / "z.tsv", "--overwrite", code=2)
    assert "no labels for subject '01'; there is for '02', '03'" in said


def test_convert_reads_cifti_and_gifti_and_tells_what_was_done(tmp_path, call):
    import nibabel as nib

    rng = np.random.default_rng(0)
    series = nib.cifti2.SeriesAxis(0, 2.0, 4)
    left = nib.cifti2.BrainModelAxis.from_surface(np.arange(5), 9, "CORTEX_LEFT")
    for id in ("01", "02"):
        image = nib.Cifti2Image(rng.normal(size=(4, 5)), (series, left))
        nib.save(image, tmp_path / f"sub-{id}_bold.dtseries.nii")
        for side, name in (("L", "CortexLeft"), ("R", "CortexRight")):
            meta = nib.gifti.GiftiMetaData({"AnatomicalStructurePrimary": name})
            arrays = [
                nib.gifti.GiftiDataArray(
                    rng.normal(size=6).astype("f4"), "NIFTI_INTENT_TIME_SERIES"
                )
                for _ in range(4)
            ]
            gifti = nib.GiftiImage(darrays=arrays, meta=meta)
            nib.save(gifti, tmp_path / f"sub-{id}_hemi-{side}_bold.func.gii")
    (tmp_path / "y.tsv").write_text("label\na\na\nb\nb\n")
    for ending, kind, n_voxels, told in (
        ("dtseries.nii", "CIFTI", 5, "repetition time: 2 s"),
        ("gii", "GIfTI", 12, "mask: all vertices"),
    ):
        files = sorted(tmp_path.glob(f"*.{ending}"))
        words = ("convert", *files, tmp_path / kind, "--labels", tmp_path / "y.tsv")
        out, _ = call(*words, "--detrend", "--param", "standardize=zscore")
        shown, _ = call("info", tmp_path / kind)
        for line in (
            f"images: {kind}, 2 runs",
            "labels: y.tsv",
            "filters: trends removed",
            "scale: z-scores of each voxel and run",
            "sub-02: a 2, b 2",
            told,
        ):
            assert line in out
            assert line in shown
        study = bw.Study.open(tmp_path / kind)
        assert [s.n_voxels for s in study] == [n_voxels] * 2
        first = study.record["runs"]["01"]["1"]
        assert first["file"].startswith("sub-01")
        assert first["volumes"] == 4


def test_convert_reads_nifti_files_of_subjects(tmp_path, call):
    nib = pytest.importorskip("nibabel")
    rng = np.random.default_rng(0)
    mask = np.ones((3, 3, 2), np.uint8)
    nib.save(nib.Nifti1Image(mask, np.eye(4)), tmp_path / "mask.nii.gz")
    paths = []
    for id in ("01", "02"):
        image = nib.Nifti1Image(rng.normal(size=(3, 3, 2, 4)), np.eye(4))
        paths.append(tmp_path / f"sub-{id}_bold.nii.gz")
        nib.save(image, paths[-1])
    table = "subject\tlabel\n" + "".join(
        f"{id}\t{label}\n"
        for id, ls in (("01", "aabb"), ("02", "abab"))
        for label in ls
    )
    (tmp_path / "y.tsv").write_text(table)
    call(
        *("convert", *paths, tmp_path / "st", "--mask", tmp_path / "mask.nii.gz"),
        *("--labels", tmp_path / "y.tsv", "-q"),
    )
    study = bw.Study.open(tmp_path / "st")
    assert study.ids == ["01", "02"]
    assert study["02"].labels.tolist() == list("abab")
    assert study["01"].n_voxels == 18
    shown, _ = call("info", tmp_path / "st")
    for line in ("images: NIfTI, 2 runs", "labels: y.tsv", "confounds: none removed"):
        assert line in shown
    assert "mask.nii.gz" in shown
    for option, said in (
        (("--mask", "common"), "--mask common needs a BIDS dataset"),
        (("--param", "t_r=0"), "between 0.01 and 100 s are expected"),
    ):
        _, error = call("convert", *paths, tmp_path / "no", *option, code=2)
        assert said in error
        assert not (tmp_path / "no").exists()


def test_convert_copies_some_subjects_of_a_study(study, tmp_path, call):
    call(
        *("convert", study, tmp_path / "two", "-q", "--name", "two"),
        *("--participant-label", "03", "--participant-label", "01"),
    )
    two = bw.Study.open(tmp_path / "two")
    assert (two.ids, two.name) == (["03", "01"], "two")


def test_info_of_a_study(study, execute, call):
    text = execute("info", study).stdout
    assert "4 subjects" in text
    assert "cat, dog, house" in text
    assert "sequences differ: GDM" in text
    facts = json.loads(call("info", study, "--json", "--verify")[0])
    assert facts["locked_in_time"] is False
    assert [s["subject"] for s in facts["subjects"]] == ["01", "02", "03", "04"]


def test_info_of_a_model_says_how_large_and_why(model, call):
    text, _ = call("info", model)
    assert "GDM of 4 subjects" in text
    assert "weights (from voxels to shared features)" in text
    assert "subjects: 01, 02, 03, 04" in text
    facts = json.loads(call("info", model, "--json")[0])
    assert facts["bytes"] == model.stat().st_size
    assert facts["provenance"]["options"]["energy"] == 0.6


def test_fetch_says_what_it_would_download(tmp_path, call):
    out, _ = call("fetch", "raider", "--dry-run", "--cache-dir", tmp_path)
    assert "Raider" in out
    assert "image_data_lh.mat" in out or "MB" in out


def test_fetch_uses_what_is_there_and_makes_a_study(tmp_path, execute):
    data = Path(__file__).parents[3] / "shared" / "data" / "raider_images"
    if not data.is_dir():
        pytest.skip("the Raider files are not on this machine")
    cache = tmp_path / "cache" / "raider"
    cache.mkdir(parents=True)
    for file in data.glob("*.mat"):
        (cache / file.name).symlink_to(file)
    execute(
        *("fetch", "raider", tmp_path / "st", "--cache-dir", tmp_path / "cache", "-q")
    )
    study = bw.Study.open(tmp_path / "st")
    assert len(study) == 10
    assert study[0].n_voxels == 1000
