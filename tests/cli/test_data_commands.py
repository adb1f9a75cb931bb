"""convert and info, end to end."""

import builtins
import errno
import io
import tomllib

import nibabel as nib
import numpy as np
import pytest
import scipy.io
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave.study.formats import folder


def simulate_bids(folder, **options):
    """Write a small BIDS dataset."""
    chosen = {"n_subjects": 2, "n_voxels": 30, "n_runs": 2, **options}
    bw.simulate_study(**chosen).to_bids(folder)
    return folder


def test_a_conversion_writes_its_configuration_which_gives_the_same_again(
    study, tmp_path, call
):
    config = study / "brainweave.toml"
    kept = tomllib.loads(config.read_text())["convert"]
    assert kept["sources"] == [str(study.parent / "simulated"), str(study)]
    words = (study.parent / "simulated", tmp_path / "again", "--config", config)
    call("convert", *words, "-q")
    names = {p.name for p in study.iterdir()} - {"brainweave.toml", "study.json"}
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (study / name).read_bytes()


def test_convert_reads_bids(tmp_path, call):
    simulate_bids(tmp_path / "bids", n_voxels=(60, 80), categories=3)
    shown, told = call("convert", tmp_path / "bids", tmp_path / "st", "--task=objects")
    assert "Writing subjects: done" in told
    assert shown.startswith(str(tmp_path / "st"))
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
        *("--labels", tmp_path / "y.tsv", "--param", "name=both", "-q"),
    )
    study = bw.Study.open(tmp_path / "st")
    assert_allclose(study[1].data(), X[1])
    assert study[0].labels.tolist() == list("aabbcc")
    assert study.name == "both"
    shown, _ = call("info", tmp_path / "st")
    assert "images: MATLAB, x.mat" in shown
    assert "labels: y.tsv" in shown


def test_labels_of_matlab_subjects_are_found_by_id(tmp_path, call):
    from scipy.io import savemat

    X = np.random.default_rng(0).normal(size=(2, 2, 5))
    savemat(tmp_path / "x.mat", {"x": X.transpose(2, 1, 0)})
    rows = "subject\tlabel\nsub-02\tc\nsub-02\td\nsub-01\ta\nsub-01\tb\n"
    (tmp_path / "y.tsv").write_text(rows)
    words = ("convert", tmp_path / "x.mat", "-q", "--labels", tmp_path / "y.tsv")
    call(*words, tmp_path / "st")
    study = bw.Study.open(tmp_path / "st")
    assert [s.labels.tolist() for s in study] == [["a", "b"], ["c", "d"]]
    (tmp_path / "y.tsv").write_text(rows.replace("sub-01", "sub-03"))
    _, said = call(*words, tmp_path / "other", code=2)
    assert "no labels for subject '01'; there is for '02', '03'" in said


def test_convert_refuses_every_image_with_a_flipped_bit(tmp_path, call):
    import nibabel as nib

    rng = np.random.default_rng(0)
    path = tmp_path / "sub-01_bold.nii.gz"
    image = nib.Nifti1Image(rng.normal(100, 9, (4, 4, 4, 9)).astype("f4"), np.eye(4))
    nib.save(image, path)
    nib.save(image.slicer[..., 0], tmp_path / "mask.nii.gz")
    content = path.read_bytes()
    for _ in range(40):
        flipped = bytearray(content)
        flipped[rng.integers(10, len(content))] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        words = ("convert", path, tmp_path / "st", "--mask", tmp_path / "mask.nii.gz")
        _, said = call(*words, code=1)
        assert "sub-01_bold.nii.gz" in said
        assert not (tmp_path / "st").exists()


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
        out, _ = call(*words, "--param", "standardize=zscore")
        shown, _ = call("info", tmp_path / kind)
        for line in (
            f"images: {kind}, 2 runs",
            "labels: y.tsv",
            "scale: z-scores of each voxel and run",
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
    for option, said in ((("--param", "t_r=0"), "between 0.01 and 100"),):
        _, error = call("convert", *paths, tmp_path / "no", *option, code=2)
        assert said in error
        assert not (tmp_path / "no").exists()


def test_convert_copies_some_subjects_of_a_study(study, tmp_path, call):
    call(
        *("convert", study, tmp_path / "two", "-q", "--param", "name=two"),
        *("--participant-label", "03", "--participant-label", "01"),
    )
    two = bw.Study.open(tmp_path / "two")
    assert (two.ids, two.name) == (["03", "01"], "two")


def test_info_of_a_study(study, execute, call):
    text = execute("info", study).stdout
    assert "4 subjects" in text
    assert "cat, dog, house" in text
    assert "sequences differ: GDM" in text
    assert call("info", study, "--verify")[0] == text


def test_info_of_a_model_says_what_it_is(model, call):
    text, _ = call("info", model)
    assert "GDM of 4 subjects" in text
    assert "PaperGDM of 4 subjects with 97 to 117 voxels" in text
    assert "subjects: 01, 02, 03, 04" in text
    assert bw.describe(model)["provenance"]["options"]["param"][0] == "energy=0.6"


# -- what is asked for in other ways ---------------------------------------------------


def test_labels_of_rest_and_confounds_can_be_kept(tmp_path, call):
    simulate_bids(tmp_path / "b")
    path = next((tmp_path / "b").rglob("sub-01*_events.tsv"))
    header, first, *rows = path.read_text().splitlines()
    cells = dict(zip(header.split("\t"), first.split("\t"), strict=True))
    first = first.replace(cells["trial_type"], "rest")
    path.write_text("\n".join([header, first, *rows]) + "\n")
    options = ("--param", "keep=rest", "--confounds", "none", "-q")
    source = tmp_path / "b"
    call("convert", source, tmp_path / "default", *options)
    assert (
        bw.Study.open(tmp_path / "default").record["settings"]["high_pass"] == 1 / 128
    )
    call("convert", source, tmp_path / "slow", *options, "--param", "high_pass=0.02")
    assert bw.Study.open(tmp_path / "slow").record["settings"]["high_pass"] == 0.02
    _, said = call(
        "convert", source, tmp_path / "x", "--param", "high_pass=low", code=2
    )
    assert "high_pass" in said
    assert "'low'" in said
    call("convert", source, tmp_path / "st", *options, "--param", "high_pass=none")
    study = bw.Study.open(tmp_path / "st")
    assert study.record["settings"]["high_pass"] is None
    assert study.record["settings"]["keep"] == ["rest"]
    assert study.record["settings"]["confounds"] is None
    assert "rest" in study.categories


def nifti(path, n=6):
    import nibabel as nib

    values = np.random.default_rng(0).normal(size=(3, 3, 3, n)).astype(np.float32)
    nib.Nifti1Image(values + 5, np.eye(4)).to_filename(path)
    return path


def test_some_subjects_of_image_files(tmp_path, call):
    import nibabel as nib

    files = [nifti(tmp_path / f"sub-0{i}_bold.nii.gz") for i in (1, 2, 3)]
    mask = nib.Nifti1Image(np.ones((3, 3, 3), np.uint8), np.eye(4))
    mask.to_filename(tmp_path / "mask.nii")
    chosen = ("--participant-label", "03", "--participant-label", "sub-01")
    chosen = (*chosen, "--mask", tmp_path / "mask.nii")
    call("convert", *files, tmp_path / "st", *chosen, "-q")
    assert bw.Study.open(tmp_path / "st").ids == ["03", "01"]
    _, said = call(
        *("convert", *files, tmp_path / "n", "--participant-label", "09", "-q"), code=2
    )
    assert "There is no file of subject '09'; there are ['01', '02', '03']." in said


def test_surfaces_whose_names_tell_no_side_are_runs(tmp_path, call):
    import nibabel as nib

    def surface(name):
        values = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32)
        arrays = [nib.gifti.GiftiDataArray(row) for row in values]
        nib.gifti.GiftiImage(darrays=arrays).to_filename(tmp_path / name)
        return tmp_path / name

    files = [surface("sub-1_run-1.func.gii"), surface("sub-1_run-2.func.gii")]
    call("convert", *files, tmp_path / "st", "-q")
    (subject,) = bw.Study.open(tmp_path / "st")
    assert subject.samples.shape == (8, 7)
    assert len(set(subject.runs.tolist())) == 2


def test_labels_of_matlab_come_from_matlab_too(tmp_path, call):
    from scipy.io import savemat

    X = np.random.default_rng(0).normal(size=(2, 6, 5))
    savemat(tmp_path / "x.mat", {"x": X.transpose(2, 1, 0)})
    savemat(tmp_path / "y.mat", {"label": np.array([1, 1, 2, 2, 3, 3])})
    labels = ("--labels", tmp_path / "y.mat")
    call("convert", tmp_path / "x.mat", tmp_path / "st", *labels, "-q")
    study = bw.Study.open(tmp_path / "st")
    assert study[0].labels.tolist() == [1, 1, 2, 2, 3, 3]
    assert study.record["settings"]["labels"] == "y.mat"
    call("convert", tmp_path / "x.mat", tmp_path / "none", "-q")
    assert bw.Study.open(tmp_path / "none")[0].labels is None


def test_a_copy_may_have_another_name(study, tmp_path, call):
    call("convert", study, tmp_path / "st", "--param", "name=other", "-q")
    copied = bw.Study.open(tmp_path / "st")
    assert copied.name == "other"
    assert copied.ids == bw.Study.open(study).ids


@pytest.fixture
def odd_files(tmp_path):
    (tmp_path / "folder").mkdir()
    nifti(tmp_path / "folder" / "anna.nii.gz")
    (tmp_path / "x.mat").write_text("")
    (tmp_path / "empty.tsv").write_text("label\n")
    (tmp_path / "other.tsv").write_text("name\ncat\n")
    (tmp_path / "sub001").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{}/folder",), "Name one BIDS or study folder"),
        (("{}/folder/anna.nii.gz", "{}/x.mat"), "is not clear"),
        (("{}/folder", "{}/sub001"), "is not clear"),
        (("{}/x.mat", "--labels", "{}/none.tsv"), "There is no file"),
        (("{}/x.mat", "--labels", "{}/empty.tsv"), "a .tsv table with a column"),
        (("{}/x.mat", "--labels", "{}/other.tsv"), "a .tsv table with a column"),
        (
            ("{}/x.mat", "--smoothing-fwhm", "3"),
            "no option 'smoothing_fwhm'",
        ),
        (("{}/folder/anna.nii.gz", "--task", "x"), "no option 'task'"),
    ],
)
def test_conversions_that_cannot_be_are_one_sentence(odd_files, call, words, said):
    filled = [word.format(odd_files) for word in words]
    i = next((k for k, w in enumerate(filled) if w.startswith("--")), len(filled))
    arguments = (*filled[:i], odd_files / "out", *filled[i:])
    _, error = call("convert", *arguments, "-q", code=2)
    assert said in error
    assert not (odd_files / "out").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (bytes(range(256)) * 4, "y.tsv' is not a tab-separated table"),
        ("label\na\n".encode("utf-16"), "y.tsv' is not a tab-separated table"),
        (b"label\tsubject\na\n", "no labels for subject '01'"),
    ],
    ids=["binary", "utf-16", "short"],
)
def test_labels_that_cannot_be_are_one_sentence(tmp_path, call, content, said):
    scipy.io.savemat(tmp_path / "x.mat", {"X": np.eye(3, 5)})
    (tmp_path / "y.tsv").write_bytes(content)
    words = ("convert", tmp_path / "x.mat", tmp_path / "st", "-q", "--labels")
    code = 1 if "not a" in said else 2
    _, told = call(*words, tmp_path / "y.tsv", code=code)
    assert said in told
    assert len(told.splitlines()) == 1


def test_the_later_of_two_conversions_is_told_that_the_folder_is_there(
    study, tmp_path, call, monkeypatch
):
    def write_later(*arguments, **options):
        monkeypatch.setattr(folder, "_write_spaces", write)
        call("convert", study, tmp_path / "st", "-q")
        return write(*arguments, **options)

    write = folder._write_spaces
    monkeypatch.setattr(folder, "_write_spaces", write_later)
    _, told = call("convert", study, tmp_path / "st", "-q", code=1)
    assert told.startswith(f"Error: '{tmp_path / 'st'}' exists. Choose another folder")
    assert (tmp_path / "st" / "brainweave.toml").exists()
    assert {p.name for p in tmp_path.iterdir()} == {"st"}


@pytest.fixture
def forbid(monkeypatch):
    """Return a function that lets a file be opened by nobody, root included."""

    def forbid(path):
        def guarded(file, *arguments, **options):
            if str(file) == str(path):
                raise PermissionError(errno.EACCES, "Permission denied", str(file))
            return allowed(file, *arguments, **options)

        allowed = open
        monkeypatch.setattr(builtins, "open", guarded)
        monkeypatch.setattr(io, "open", guarded)

    return forbid


@pytest.mark.parametrize("name", ["study.json", "sub-01.npy"])
def test_a_study_that_may_not_be_read_names_the_permission(study, call, forbid, name):
    forbid(study / name)
    _, told = call("info", study, code=1)
    assert told == (
        f"Error: '{study / name}' cannot be read (Permission denied). Ask its owner "
        "for permission to read it.\n"
    )


def test_an_image_that_may_not_be_read_names_the_permission(tmp_path, call, forbid):
    image = tmp_path / "sub-01_bold.nii.gz"
    nib.save(nib.Nifti1Image(np.ones((4, 4, 4, 6), "f4"), np.eye(4)), image)
    forbid(image)
    _, told = call("convert", image, tmp_path / "st", "-q", code=1)
    assert "cannot be read (Permission denied). Ask its owner" in told
    assert "damaged" not in told
    assert "folder" not in told
