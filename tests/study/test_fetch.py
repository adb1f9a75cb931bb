"""Raider and Haxby from a local server that has the real small files."""

import errno
import hashlib
import io
import shutil
import tarfile

import nibabel as nib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import savemat

from brainweave._core.exceptions import InputError, StudyError
from brainweave.study import Cleaning
from brainweave.study import public as datasets
from brainweave.study.public import fetch_haxby, fetch_raider

pytestmark = pytest.mark.network


@pytest.fixture
def raider(server, real_data, monkeypatch):
    folder = real_data / "raider_images"
    if not folder.is_dir():
        pytest.skip(f"no Raider images in {real_data}")
    for name in ("image_data_lh.mat", "image_data_rh.mat", "label.mat"):
        server.files["raider/" + name] = (folder / name).read_bytes()
    monkeypatch.setattr(datasets, "RAIDER_URL", server.url + "raider/")
    return server


def test_raider_arrives_with_labels_and_runs(raider, tmp_path):
    study = fetch_raider(cache_dir=tmp_path)
    assert len(study) == 10
    assert {s.samples.shape for s in study} == {(56, 1000)}
    assert study.categories == [1, 2, 3, 4, 5, 6, 7]
    assert study.run_ids == list(range(1, 9))
    assert study[0].labels[:7].tolist() == [6, 5, 4, 2, 1, 7, 3]


def test_raider_goes_on_after_a_broken_connection_and_works_offline(
    raider, tmp_path, monkeypatch
):
    raider.break_after["raider/image_data_rh.mat"] = [1_000_000]
    with pytest.raises(StudyError, match=r"_rh\.mat cannot be .*1000000 bytes"):
        fetch_raider(cache_dir=tmp_path)
    first = fetch_raider(cache_dir=tmp_path)
    monkeypatch.setattr(datasets, "RAIDER_URL", "http://127.0.0.1:9/")
    again = fetch_raider(cache_dir=tmp_path)
    assert len(raider.gets("raider/image_data_lh.mat")) == 1
    assert_array_equal(first[3].data(), again[3].data())


def test_raider_refuses_other_bytes(raider, tmp_path):
    changed = bytearray(raider.files["raider/label.mat"])
    changed[-1] ^= 1
    raider.files["raider/label.mat"] = bytes(changed)
    with pytest.raises(StudyError, match=r"label.mat does not have the expected"):
        fetch_raider(cache_dir=tmp_path)


def test_raider_has_two_parts():
    with pytest.raises(InputError, match="'images', 'movie'; got 'film'"):
        fetch_raider("film")


def test_raider_movie_is_locked_in_time(server, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    listed = {}
    for side in ("lh", "rh"):
        buffer = io.BytesIO()
        savemat(buffer, {f"movie_data_{side}": rng.normal(size=(5, 20, 3))})
        content = buffer.getvalue()
        server.files[f"movie_data_{side}.mat"] = content
        head = f"blob {len(content)}\0".encode()
        id = hashlib.sha1(head + content).hexdigest()
        listed[f"movie_data_{side}.mat"] = id
    monkeypatch.setitem(datasets.RAIDER_FILES, "movie", listed)
    monkeypatch.setattr(datasets, "RAIDER_URL", server.url)
    study = fetch_raider("movie", cache_dir=tmp_path)
    assert {s.samples.shape for s in study} == {(20, 10)}
    assert study[2].stimuli.tolist() == list(range(20))
    assert study[2].labels is None


# --- Haxby: the archives that nilearn expects, made of real slices ----------------

LABELS = "attributes_literal.txt"


def archive(mini, number, keep):
    """Pack a subject the way the server does; its VT mask has `keep` voxels."""
    mask = nib.load(mini / "mask.nii.gz")
    inside = np.flatnonzero(mask.get_fdata())[:keep]
    chosen = np.zeros(mask.shape, np.int16)
    chosen.flat[inside] = 1
    small = nib.Nifti1Image(chosen, mask.affine).to_bytes()
    import gzip

    files = {
        "bold.nii.gz": (mini / "bold.nii.gz").read_bytes(),
        "labels.txt": b"labels chunks\n" + (mini / LABELS).read_bytes(),
        "anat.nii.gz": (mini / "mask.nii.gz").read_bytes(),
    }
    for name in ("mask4_vt", "mask8b_face_vt", "mask8b_house_vt"):
        files[f"{name}.nii.gz"] = gzip.compress(small, mtime=0)
    for name in ("mask8_face_vt", "mask8_house_vt"):
        files[f"{name}.nii.gz"] = gzip.compress(small, mtime=0)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"subj{number}/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


@pytest.fixture
def haxby(server, mini_haxby, tmp_path):
    for number, keep in ((1, 500), (2, 420)):
        name = f"subj{number}-2010.01.14.tar.gz"
        server.files["haxby/" + name] = archive(mini_haxby, number, keep)
    write_sums(server)
    cache = tmp_path / "cache"
    # nilearn takes this one from a fixed address
    (cache / "nilearn" / "haxby2001").mkdir(parents=True)
    shutil.copy(mini_haxby / "mask.nii.gz", cache / "nilearn" / "haxby2001")
    server.haxby_url = server.url + "haxby/"
    server.cache = cache
    return server


def write_sums(server):
    lines = [
        f"{hashlib.md5(content).hexdigest()}  {path.removeprefix('haxby/')}"
        for path, content in server.files.items()
        if path.endswith(".tar.gz")
    ]
    server.files["haxby/MD5SUMS"] = ("\n".join(lines) + "\n").encode()


def get_haxby(haxby, **options):
    options = {"subjects": [1, 2], "hrf_delay": 0.0, "progress": False, **options}
    return fetch_haxby(cache_dir=haxby.cache, url=haxby.haxby_url, **options)


def test_haxby_subjects_have_masks_of_different_sizes(haxby, mini_haxby):
    study = get_haxby(haxby)
    assert study.summary()["voxels"].tolist() == [500, 420]
    assert study.ids == ["subj1", "subj2"]
    subject = study["subj2"]
    assert subject.n_samples == 864
    assert subject.run_ids == list(range(1, 13))
    assert len(subject.categories) == 8
    rows = [line.split() for line in (mini_haxby / LABELS).read_text().splitlines()]
    shown = [label for label, _ in rows if label != "rest"]
    assert subject.labels.tolist() == shown
    image = nib.load(mini_haxby / "bold.nii.gz").get_fdata(dtype=np.float32)
    volume = [label for label, _ in rows].index(shown[0])
    expected = image[..., volume][subject.space.mask]
    assert_allclose(subject.data()[0], expected, rtol=1e-6)
    assert subject.onsets[0] == volume * 2.5


def test_haxby_delay_moves_labels_within_runs_only(haxby):
    direct = get_haxby(haxby, subjects=[1], keep_rest=True)[0]
    late = get_haxby(haxby, subjects=[1], keep_rest=True, hrf_delay=5.0)[0]
    for run in direct.run_ids:
        here = direct.runs == run
        assert late.labels[here][2:].tolist() == direct.labels[here][:-2].tolist()
        assert late.labels[here][:2].tolist() == [None, None]


def test_haxby_cleans_each_run_by_itself(haxby):
    cleaning = Cleaning(standardize="zscore")
    study = get_haxby(haxby, subjects=[1], keep_rest=True, cleaning=cleaning)
    values, runs = study[0].data(), study[0].runs
    for run in (1, 12):
        assert_allclose(values[runs == run].mean(axis=0), 0, atol=1e-4)


def test_haxby_works_offline(haxby):
    get_haxby(haxby)
    offline = fetch_haxby(
        [1, 2], cache_dir=haxby.cache, url="http://127.0.0.1:9/", progress=False
    )
    assert offline.ids == ["subj1", "subj2"]


def test_haxby_with_wrong_checksum_or_no_network_is_an_error(haxby):
    haxby.files["haxby/subj1-2010.01.14.tar.gz"] += b"changed"
    with pytest.raises(StudyError, match="Haxby data could not be downloaded"):
        get_haxby(haxby, subjects=[1])
    with pytest.raises(StudyError, match="Try again when online"):
        fetch_haxby(
            [2], cache_dir=haxby.cache, url="http://127.0.0.1:9/", progress=False
        )


def test_haxby_is_resumed_after_a_broken_connection(haxby):
    name = "haxby/subj1-2010.01.14.tar.gz"
    half = len(haxby.files[name]) // 2
    haxby.break_after[name] = [half]
    with pytest.raises(StudyError, match="nilearn resumes"):
        get_haxby(haxby, subjects=[1])
    assert get_haxby(haxby, subjects=[1])[0].n_voxels == 500
    assert haxby.gets(name)[-1][2] == f"bytes={half}-"


def test_haxby_refuses_what_it_does_not_have():
    with pytest.raises(InputError, match=r"from 1 to 6, got \[7\]"):
        fetch_haxby([7])
    with pytest.raises(InputError, match="must be one of 'vt', 'face', 'house'"):
        fetch_haxby([1], mask="brain")


def test_haxby_labels_that_do_not_fit_are_named(haxby):
    get_haxby(haxby, subjects=[1])
    path = haxby.cache / "nilearn" / "haxby2001" / "subj1" / "labels.txt"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *rows[:-1]]))
    with pytest.raises(StudyError, match=r"volumes, but its labels.txt has \d+ rows"):
        get_haxby(haxby, subjects=[1])
    path.write_text("\n".join([header, "face one"]))
    with pytest.raises(StudyError, match="is not a table of labels and chunks"):
        get_haxby(haxby, subjects=[1])


def test_a_full_disk_is_said_of_haxby_too(haxby, monkeypatch):
    def full(**options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("nilearn.datasets.fetch_haxby", full)
    with pytest.raises(StudyError, match="The disk was full before"):
        get_haxby(haxby)
