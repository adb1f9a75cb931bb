"""Haxby from a local server that has the real small files."""

import errno
import hashlib
import io
import shutil
import tarfile
from functools import partial

import nibabel as nib
import numpy as np
import pytest
from nilearn import datasets
from numpy.testing import assert_allclose

from brainweave._core.exceptions import InputError, StudyError
from brainweave.study.public import fetch_haxby

pytestmark = pytest.mark.network


# --- Haxby: the archives that nilearn expects, made of real slices ----------------

LABELS = "attributes_literal.txt"
FETCH = datasets.fetch_haxby


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


def use_mirror(monkeypatch, url):
    """Send nilearn to another server."""
    monkeypatch.setattr("nilearn.datasets.fetch_haxby", partial(FETCH, url=url))


@pytest.fixture
def haxby(server, mini_haxby, tmp_path, monkeypatch):
    for number, keep in ((1, 500), (2, 420)):
        name = f"subj{number}-2010.01.14.tar.gz"
        server.files["haxby/" + name] = archive(mini_haxby, number, keep)
    write_sums(server)
    cache = tmp_path / "cache"
    # nilearn takes this one from a fixed address
    (cache / "haxby2001").mkdir(parents=True)
    shutil.copy(mini_haxby / "mask.nii.gz", cache / "haxby2001")
    use_mirror(monkeypatch, server.url + "haxby/")
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
    options = {"subjects": [1, 2], "hrf_delay": 0.0, **options}
    return fetch_haxby(cache_dir=haxby.cache, **options)


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
    direct = get_haxby(haxby, subjects=[1])[0]
    late = get_haxby(haxby, subjects=[1], hrf_delay=5.0)[0]
    for run in direct.run_ids:
        one, two = (s.select(s.runs == run) for s in (direct, late))
        shown = one.onsets + 5.0 < 121 * 2.5  # within the run
        assert two.labels.tolist() == one.labels[shown].tolist()
        assert_allclose(two.onsets, one.onsets[shown] + 5.0)


def test_haxby_works_offline(haxby, monkeypatch):
    get_haxby(haxby)
    use_mirror(monkeypatch, "http://127.0.0.1:9/")
    offline = fetch_haxby([1, 2], cache_dir=haxby.cache)
    assert offline.ids == ["subj1", "subj2"]


def test_haxby_with_wrong_checksum_or_no_network_is_an_error(haxby, monkeypatch):
    haxby.files["haxby/subj1-2010.01.14.tar.gz"] += b"changed"
    with pytest.raises(StudyError, match="Could not download the Haxby data"):
        get_haxby(haxby, subjects=[1])
    use_mirror(monkeypatch, "http://127.0.0.1:9/")
    with pytest.raises(StudyError, match="try again when online"):
        fetch_haxby([2], cache_dir=haxby.cache)


def test_haxby_is_resumed_after_a_broken_connection(haxby):
    name = "haxby/subj1-2010.01.14.tar.gz"
    half = len(haxby.files[name]) // 2
    haxby.break_after[name] = [half]
    with pytest.raises(StudyError, match="to resume"):
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
    path = haxby.cache / "haxby2001" / "subj1" / "labels.txt"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *rows[:-1]]))
    with pytest.raises(InputError, match=r"samples, but labels have shape"):
        get_haxby(haxby, subjects=[1])


def test_a_full_disk_is_said_of_haxby_too(haxby, monkeypatch):
    def full(**options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("nilearn.datasets.fetch_haxby", full)
    with pytest.raises(StudyError, match="The disk was full before"):
        get_haxby(haxby)
