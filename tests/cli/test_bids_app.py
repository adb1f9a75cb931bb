"""The BIDS App: levels, exit codes, and output that the official validator accepts."""

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import pytest
import typer
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave.cli.app import app as commands
from brainweave.cli.bids_app import filter_options
from brainweave.cli.console import UsageError
from brainweave.cli.console import run as run_in_process
from brainweave.study import SimulationSettings

ROOT = Path(__file__).parents[2]
METHOD = (
    *("--method", "paper-gdm", "--n-components", "2", "--param", "energy=0.7"),
    *("--task", "objects"),
    *("--bids-param", "dtype=float64"),
)
MODEL = "task-objects_desc-papergdm_model.safetensors"


@pytest.fixture(scope="module")
def bids(tmp_path_factory, execute):
    folder = tmp_path_factory.mktemp("bids") / "data"
    study = bw.simulate_study(
        n_subjects=3,
        n_voxels=(60, 80),
        categories=3,
        n_runs=2,
        settings=SimulationSettings(n_nuisance=20),
    )
    study.to_bids(folder, raw=True, derivatives=False)
    return folder


@pytest.fixture(scope="module")
def derivative(bids, execute):
    """What one run per subject, and another process for the group, wrote."""
    out = bids.parent / "out"
    for id in ("01", "sub-02", "03"):
        words = ("run", bids, out, "participant", "--participant-label", id)
        assert run_in_process([*map(str, words), *METHOD, "-q"]) == 0
    done = execute("run", bids, out, "group", *METHOD, "-q")
    (bids.parent / "said").write_text(done.stdout)
    return out


def test_group_ends_in_a_verdict_with_a_p_value(bids, derivative):
    said = (bids.parent / "said").read_text().strip()
    assert said.startswith(f"{derivative / MODEL}: PaperGDM of 3 subjects, 2 shared")
    assert len(said.splitlines()) == 1
    assert re.search(r"(Alignment worked|No evidence).* p = 0\.\d+", said)


def test_separate_processes_give_the_model_of_one_fit(bids, derivative):
    study = bw.load_bids(bids, task="objects", dtype="float64")
    loaded, want = bw.load(derivative / MODEL), bw.PaperGDM(2, energy=0.7).fit(study)
    assert_allclose(loaded.eigenvalues_, want.eigenvalues_, rtol=1e-10)
    for a, b in zip(loaded.coef_, want.coef_, strict=True):
        assert_allclose(a, b, rtol=0, atol=1e-10)
    for a, b in zip(loaded.maps_, want.maps_, strict=True):
        assert_allclose(a.weights, b.weights, rtol=0, atol=1e-10)
        assert_allclose(a.patterns, b.patterns, rtol=0, atol=1e-10)
    X = [s.data() for s in study]
    for a, b in zip(loaded.transform(X), want.transform(X), strict=True):
        assert_allclose(a, b, rtol=0, atol=1e-10)


def test_other_methods_end_in_a_verdict_too(tmp_path, call):
    study = bw.simulate_study(
        n_subjects=3, n_voxels=60, categories=3, n_runs=2, own_sequence=False
    )
    study.to_bids(tmp_path / "b", raw=True, derivatives=False)
    options = ("--method", "detsrm", "--n-components", "2", "--no-report", "-q")
    for level in ("participant", "group"):
        said, _ = call("run", tmp_path / "b", tmp_path / "o", level, *options)
    assert re.search(r"(Alignment worked|No evidence).* p = 0\.\d+", said)


def test_the_derivative_describes_itself(bids, derivative):
    about = json.loads((derivative / "dataset_description.json").read_text())
    assert about["DatasetType"] == "derivative"
    assert about["GeneratedBy"][0]["Name"] == "brainweave"
    assert about["SourceDatasets"][0]["URL"] == bids.resolve().as_uri()
    sidecar = json.loads((derivative / MODEL).with_suffix(".json").read_text())
    assert sidecar["Subjects"] == ["sub-01", "sub-02", "sub-03"]
    stem = derivative / "sub-02" / "func" / "sub-02_task-objects_desc-"
    basis = json.loads(Path(f"{stem}brainweave_basis.json").read_text())
    assert "energy=0.7" in basis["Options"]["param"]
    assert basis["Options"]["task"] == "objects"
    table = Path(f"{stem}papergdm_timeseries.tsv").read_text().splitlines()
    assert table[0] == "feature0\tfeature1\tlabel\trun\taligned"
    labels = {line.split("\t")[2] for line in table[1:]}
    assert len(labels) > 1
    assert "n/a" not in labels
    settings = basis["Preprocessing"]["settings"]
    assert settings["hrf_delay"] == 5
    mask = json.loads(Path(f"{stem}brainweave_mask.json").read_text())
    place = mask["SpatialReference"].removeprefix("bids:source:")
    image = nib.load(bids / place)
    inside = nib.load(f"{stem}brainweave_mask.nii.gz")
    assert inside.get_fdata().sum() == bw.load_bids(bids, task="objects")[1].n_voxels
    assert_allclose(inside.affine, image.affine)
    assert inside.shape == image.shape[:3]
    assert len(table) - 1 == basis["NumberOfSamples"]
    page = (derivative / MODEL).with_suffix(".html").read_text(encoding="utf-8")
    # the picture is of samples that did not align: others look good in noise too
    assert "All samples are held-out" in page


def load_file(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def validator_errors(folder):
    validator = Path(sys.executable).with_name("bids-validator-deno")
    if not validator.exists():
        pytest.skip("the official validator (bids-validator-deno) is not installed")
    done = subprocess.run(
        [validator, folder, "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    issues = json.loads(done.stdout)["issues"]["issues"]
    errors = [i for i in issues if i["severity"] == "error"]
    assert (done.returncode != 0) == bool(errors)
    return errors


def test_the_official_validator_accepts_the_derivative(derivative):
    assert validator_errors(derivative) == []


def test_without_a_level_participants_come_first_and_then_the_group(tmp_path, call):
    study = bw.simulate_study(n_subjects=3, n_voxels=40, categories=3, n_runs=2)
    study.to_bids(tmp_path / "b", raw=True, derivatives=False)
    out = tmp_path / "o"
    options = ("--n-components", "2", "--no-report", "-q", "--n_cpus", 1)
    call("run", tmp_path / "b", out, *options)
    assert list(out.glob("*_model.safetensors"))
    about = json.loads((out / "dataset_description.json").read_text())
    assert about["GeneratedBy"][0]["CodeURL"].startswith("https://")
    told = (out / "descriptions.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in told[1:]] == ["desc-brainweave", "desc-gdm"]
    assert validator_errors(out) == []


def test_the_boutiques_descriptor_makes_command_lines_that_are_understood(tmp_path):
    boutiques = pytest.importorskip("boutiques", reason="boutiques is not installed")
    tool = load_file(ROOT / "tools/boutiques.py")
    text = (ROOT / "recipe/boutiques.json").read_text(encoding="utf-8")
    # python tools/boutiques.py writes it again
    assert json.loads(text) == tool.descriptor()
    boutiques.validate(str(ROOT / "recipe/boutiques.json"))
    for name in ("data", "filter.json"):
        (tmp_path / name).mkdir()
    given = {
        **{"bids_dir": str(tmp_path / "data"), "output_dir": "out"},
        **{"analysis_level": "group", "participant_label": ["01", "02"]},
        **{"session_label": ["a", "b"], "param": ["energy=0.7", "tol=1"]},
        **{"smoothing_fwhm": 4, "n_jobs": 2, "no_report": True, "quiet": True},
        **{"method": "srm", "bids_filter_file": str(tmp_path / "filter.json")},
    }
    said = boutiques.execute(
        "simulate", str(ROOT / "recipe/boutiques.json"), "-i", json.dumps(given)
    )
    words = shlex.split(str(said.stdout).strip().splitlines()[-1])
    assert words[:2] == ["brainweave", "run"]
    command = typer.main.get_command(commands).commands["run"]
    params = command.make_context("run", words[2:]).params
    for name, value in given.items():
        got = not params["report"] if name == "no_report" else params[name]
        assert (str(got) if isinstance(got, Path) else got) == value, name


def test_filter_files_choose_runs_as_those_of_fmriprep(tmp_path):
    path = tmp_path / "filter.json"
    wanted = {"datatype": "func", "session": "01", "task": "film", "acquisition": "x"}
    path.write_text(json.dumps({"bold": wanted, "t1w": {"session": "02"}}))
    assert filter_options(path) == {
        "sessions": ["01"],
        "task": "film",
        "entities": {"acq": "x"},
    }
    path.write_text("[]")
    with pytest.raises(UsageError, match="is not a JSON file such as"):
        filter_options(path)


def test_sessions_are_chosen_by_label(tmp_path, call):
    study = bw.simulate_study(n_subjects=2, n_voxels=40, categories=3, n_runs=2)
    study.to_bids(tmp_path / "b", raw=True, derivatives=False)
    how = ("run", tmp_path / "b", tmp_path / "o", "participant", "-q")
    _, err = call(*how, "--session-label", "ses-07", code=1)
    assert "07" in err


@pytest.mark.parametrize("preprocessed", [False, True])
def test_the_only_task_and_space_are_named_without_being_asked_for(
    tmp_path, call, preprocessed
):
    options = {"n_subjects": 2, "n_voxels": (30, 40), "categories": 3, "n_runs": 1}
    small = SimulationSettings(n_nuisance=5)
    study = bw.simulate_study(**options, settings=small)
    data = tmp_path / "data"
    study.to_bids(data, raw=not preprocessed, derivatives=preprocessed)
    out = {}
    chosen = ("--task", "objects", *(("--space", "T1w") if preprocessed else ()))
    for form, words in (("plain", ()), ("chosen", chosen)):
        out[form] = tmp_path / form
        for level in ("participant", "group"):
            rest = (level, "--n-components", 2, "--no-report", "-q", *words)
            call("run", data, out[form], *rest)
        assert validator_errors(out[form]) == []
    names = {
        form: sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))
        for form, folder in out.items()
    }
    assert names["plain"] == names["chosen"]
    kind = "task-objects_space-T1w" if preprocessed else "task-objects"
    stem = out["plain"] / "sub-01" / "func" / f"sub-01_{kind}_desc-"
    table = json.loads(Path(f"{stem}gdm_timeseries.json").read_text())
    assert table["SamplingFrequency"] == "TR"


def test_blocks_have_no_sampling_frequency(app):
    for level in ("participant", "group"):
        app(level, "--samples", "blocks")
    sidecar = next(app.out.glob("sub-01/func/*_timeseries.json"))
    assert "SamplingFrequency" not in json.loads(sidecar.read_text())


def test_bases_that_are_done_are_kept(bids, derivative, call):
    basis = next(derivative.glob("sub-01/func/*_basis.safetensors"))
    before = basis.stat().st_mtime_ns
    one = ("--participant-label", "01", "-q")
    call("run", bids, derivative, "participant", *METHOD, *one)
    assert basis.stat().st_mtime_ns == before


def test_a_subject_that_fails_is_named_and_the_others_are_done(bids, tmp_path, call):
    broken = tmp_path / "data"
    shutil.copytree(bids, broken)
    for image in broken.glob("sub-02/func/*_bold.nii.gz"):
        image.write_bytes(image.read_bytes()[:2000])
    labels = ("--participant-label", "01", "02")
    _, said = call(
        "run", broken, tmp_path / "out", "participant", *METHOD, *labels, "-q", code=1
    )
    assert "1 of 2 subjects failed" in said
    assert "sub-02: " in said
    assert [p.name for p in tmp_path.glob("out/sub-*")] == ["sub-01"]
    assert list(tmp_path.glob("out/sub-01/func/*.safetensors"))


def test_wrong_usage_of_the_app(bids, derivative, tmp_path, call):
    def said(*arguments):
        return call("run", *arguments, code=2)[1]

    assert "no subject '99'" in said(
        bids, tmp_path, "participant", "--participant-label", "99"
    )
    assert "Run the level participant first" in said(bids, tmp_path / "n", "group")
    assert "not BIDS_DIR itself" in said(bids, bids, "participant")
    assert "--method robust-srm does not align bases" in said(
        bids, tmp_path, "group", "--method", "robust-srm"
    )
    sleep = (*METHOD[:4], "--task", "sleep")
    error = call("run", bids, tmp_path, "participant", *sleep, code=1)[1]
    assert "3 of 3 subjects failed" in error
    assert "sleep" in error


# -- what is combined must fit ---------------------------------------------------------


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """A dataset small enough to be read often."""
    folder = tmp_path_factory.mktemp("small") / "data"
    study = bw.simulate_study(
        n_subjects=3,
        n_voxels=(30, 40),
        categories=3,
        n_runs=2,
        settings=SimulationSettings(n_nuisance=5),
    )
    study.to_bids(folder, raw=True, derivatives=False)
    return folder


@pytest.fixture
def app(two_runs, tmp_path, call):
    """Run the app on a dataset of its own."""
    data, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(two_runs, data)

    def run(level, *options, code=0):
        wanted = ("--n-components", 2, "--no-report", "-q")
        return call("run", data, out, level, *wanted, *options, code=code)

    run.data, run.out = data, out
    return run


def damage(image):
    image.write_bytes(image.read_bytes()[:500])


def test_a_group_of_two_tasks_is_refused(app):
    for path in list(app.data.glob("sub-03/func/*")):
        path.rename(path.with_name(path.name.replace("objects", "faces")))
    one, other = ("--task", "objects"), ("--task", "faces")
    app("participant", "--participant-label", "01", "02", *one)
    app("participant", "--participant-label", "03", *other)
    _, said = app("group", code=2)
    assert "task-objects (sub-01, sub-02); task-faces (sub-03)" in said
    assert "--task" in said
    assert not list(app.out.glob("*_model.safetensors"))
    app("group", *one)
    made = bw.describe(app.out / MODEL.replace("papergdm", "gdm"))["provenance"]
    assert made["subjects"] == ["01", "02"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--smoothing-fwhm", 4), "smoothing_fwhm of the data is not given for sub-01"),
        (("--bids-param", "high_pass=0.01"), "0.01 for sub-03"),
        (("--param", "standardize=false"), "standardize of the basis is True for"),
        (("--bids-param", "standardize=zscore"), "standardize of the data is"),
    ],
    ids=lambda o: str(o[0]),
)
def test_a_group_of_bases_made_in_different_ways_is_refused(app, options, said):
    app("participant", "--participant-label", "01", "02")
    app("participant", "--participant-label", "03", *options)
    _, error = app("group", code=2)
    assert said in error
    assert "sub-03" in error
    assert not list(app.out.glob("*_model.safetensors"))


def test_the_old_basis_of_a_subject_that_failed_is_not_taken_for_a_new_one(app):
    app("participant", "--smoothing-fwhm", 4)
    for image in app.data.glob("sub-02/func/*_bold.nii.gz"):
        damage(image)
    _, said = app("participant", "--smoothing-fwhm", 6, code=1)
    assert "1 of 3 subjects failed" in said
    _, said = app("group", "--smoothing-fwhm", 6, code=2)
    assert "has changed since the basis of sub-02 was made" in said


def test_group_records_how_the_bases_were_made(app):
    app("participant", "--smoothing-fwhm", 4, "--bids-param", "standardize=psc")
    app("group")
    made = bw.describe(app.out / "task-objects_desc-gdm_model.safetensors")[
        "provenance"
    ]
    assert made["settings"]["data"]["smoothing_fwhm"] == 4
    assert made["settings"]["data"]["standardize"] == "psc"
    _, said = app("group", "--smoothing-fwhm", 6, code=2)
    assert "of the data is 4.0 for sub-01, and 6.0 for these options" in said
    _, said = app("group", "--param", "standardize=false", code=2)
    assert "of the basis is True for sub-01, and False for these options" in said


def test_replaced_images_are_read_again(app):
    app("participant")
    basis = (
        app.out
        / "sub-02"
        / "func"
        / "sub-02_task-objects_desc-brainweave_basis.safetensors"
    )
    others = (
        app.out
        / "sub-01"
        / "func"
        / "sub-01_task-objects_desc-brainweave_basis.safetensors"
    )
    before, kept = basis.read_bytes(), others.stat().st_mtime_ns
    first, second = sorted(app.data.glob("sub-02/func/*_bold.nii.gz"))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    _, said = app("group", code=2)
    assert "has changed since the basis of sub-02 was made" in said
    app("participant")
    assert basis.read_bytes() != before
    assert others.stat().st_mtime_ns == kept
    app("group")


def test_a_basis_under_the_name_of_another_subject_is_refused(app):
    app("participant")
    stem = "func/sub-{0}_task-objects_desc-brainweave_basis.safetensors"
    source = app.out / "sub-01" / stem.format("01")
    shutil.copy(source, app.out / "sub-02" / stem.format("02"))
    _, said = app("group", code=2)
    assert "holds no basis of sub-02" in said


def test_the_dataset_is_listed_once(app, monkeypatch):
    from brainweave.study.formats import bids

    calls = []
    plain = bids._bold_files

    def counted(folder):
        calls.append(folder)
        return plain(folder)

    monkeypatch.setattr(bids, "_bold_files", counted)
    app("participant")
    assert len(calls) == 1


def test_an_odd_header_fails_its_subject_alone(app):
    import gzip

    import numpy as np

    image = sorted(app.data.glob("sub-02/func/*_bold.nii.gz"))[0]
    content = bytearray(gzip.decompress(image.read_bytes()))
    content[108:112] = np.float32(np.nan).tobytes()  # vox_offset
    image.write_bytes(gzip.compress(bytes(content)))
    _, said = app("participant", code=1)
    assert "1 of 3 subjects failed. sub-02: " in said
    assert len(list(app.out.glob("sub-*/func/*_basis.safetensors"))) == 2


def test_options_that_cannot_work_for_one_subject_at_a_time_are_refused(app):
    _, said = app("participant", "--mask", "common", code=2)
    assert "needs all subjects at once" in said
    for name in ("magic", "task", "name"):
        _, said = app("participant", "--bids-param", f"{name}=1", code=2)
        assert f"--bids-param has no setting '{name}'" in said
    _, said = app("participant", "--bids-param", "magic", code=2)
    assert "--bids-param takes NAME=VALUE" in said


def test_runs_of_the_bases_choose_the_strength(bids, tmp_path, call):
    study = bw.load_bids(bids, task="objects")
    options = ("--n-components", "2", "--task", "objects", "-q")
    for level in ("participant", "group"):
        call("run", bids, tmp_path, level, *options)
    model = tmp_path / MODEL.replace("papergdm", "gdm")
    loaded, want = bw.load(model), bw.GDM(2).fit(study)
    assert loaded.shrinkage_by_ == want.shrinkage_by_ == "runs"
    assert loaded.shrinkage_ == want.shrinkage_
    report = model.with_suffix(".html").read_text(encoding="utf-8")
    assert "in left-out runs" in " ".join(report.split())


# -- what machines and datasets may be like --------------------------------------------


def basis_of(app, id="01"):
    return next((app.out / f"sub-{id}" / "func").glob("*_basis.safetensors"))


def facts_of(app, id="01"):
    return json.loads(basis_of(app, id).with_suffix(".json").read_text())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--param", "energy=0"), "gdm has no parameter 'energy'"),
        (("--method", "gdmcv"), "use brainweave fit"),
    ],
)
def test_options_that_mean_nothing_to_the_app_are_refused(app, options, said):
    assert said in app("participant", *options, code=2)[1]
    assert not app.out.exists()


def test_what_is_no_dataset_is_refused(app, tmp_path, call):
    app.out.write_text("")
    assert "OUTPUT_DIR must be a folder" in app("participant", code=2)[1]
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "dataset_description.json").write_text("{")
    level = (tmp_path / "o", "participant", "-q")
    assert "has no subjects" in call("run", empty, *level, code=2)[1]


def test_a_dataset_without_a_description_is_taken_on_demand(app):
    (app.data / "dataset_description.json").unlink()
    app("participant", "--participant-label", "01")
    about = json.loads((app.out / "dataset_description.json").read_text())
    assert about["Name"].endswith("of data")  # the folder's name


def test_the_source_is_cited(app):
    path = app.data / "dataset_description.json"
    known = {"DatasetDOI": "doi:10.1/x", "Authors": ["Ada"], "License": "CC0"}
    path.write_text(json.dumps(json.loads(path.read_text()) | known))
    app("participant", "--participant-label", "01")
    about = json.loads((app.out / "dataset_description.json").read_text())
    assert about["SourceDatasets"][0]["DOI"] == "doi:10.1/x"
    assert (about["Authors"], about["License"]) == (["Ada"], "CC0")


def test_a_damaged_basis_is_made_again(app):
    app("participant")
    path = basis_of(app)
    whole, other = path.read_bytes(), basis_of(app, "02").stat().st_mtime_ns
    path.write_bytes(whole[:-10])
    app("participant")
    assert bw.describe(path, verify=True)["facts"]["n_samples"]
    assert basis_of(app, "02").stat().st_mtime_ns == other


def test_files_that_come_or_go_make_the_basis_again(app):
    app("participant", "--participant-label", "01")
    before = facts_of(app)
    for path in (app.data / "sub-01").rglob("*run-2*"):
        path.unlink()
    app("participant", "--participant-label", "01")
    after = facts_of(app)
    assert len(after["Inputs"]) < len(before["Inputs"])
    assert after["NumberOfSamples"] < before["NumberOfSamples"]


def test_a_mask_and_what_is_no_default_are_written_down(app, tmp_path):
    import numpy as np

    image = nib.load(next((app.data / "sub-01").rglob("*_bold.nii.gz")))
    ones = nib.Nifti1Image(np.ones(image.shape[:3], np.uint8), image.affine)
    ones.to_filename(tmp_path / "mask.nii.gz")
    mask = ("--mask", tmp_path / "mask.nii.gz", "--bids-param", "derivatives=none")
    app("participant", *mask, "--confounds", "none")
    facts = facts_of(app)
    assert str(tmp_path / "mask.nii.gz") in facts["Inputs"]
    assert facts["Settings"]["data"]["derivatives"] == "none"
    app("group", *mask, "--confounds", "none")
    model = next(app.out.glob("*_model.json"))
    settings = json.loads(model.read_text())["Settings"]["data"]
    assert settings["confounds"] == settings["derivatives"] == "none"


def test_kernels_of_other_widths_do_not_go_together(app):
    kernel = ("--param", "kernel=gaussian", "--param")
    app("participant", "--participant-label", "01", *kernel, "kernel_params={hp=50.0}")
    app("participant", "--participant-label", "02", *kernel, "kernel_params={hp=60.0}")
    _, said = app("group", *kernel, "kernel_params={hp=50.0}", code=2)
    assert "is {'hp': 50.0} for sub-01, and {'hp': 60.0} for sub-02" in said


def test_bases_of_python_do_not_say_how_they_were_made(app):
    from brainweave import load, save

    app("participant")
    path = basis_of(app)
    made = bw.describe(path)["provenance"]
    subject = bw.load_bids(app.data, subjects=["01"])[0]
    save(load(path), path, subject=subject)
    _, said = app("group", code=2)
    assert "holds no basis of sub-01 that the level participant made" in said
    # without a record of the data there is no chapter on preprocessing
    save(load(path), path, subject=subject, provenance={**made, "record": None})
    app("group", "--report")
    page = next(app.out.glob("*_model.html")).read_text(encoding="utf-8")
    assert 'id="preprocessing"' not in page


def test_info_of_a_basis_names_its_subject(app, call):
    app("participant", "--participant-label", "01")
    shown, _ = call("info", basis_of(app))
    assert "subjects: 01" in shown
    assert "made by: brainweave run participant" in shown
