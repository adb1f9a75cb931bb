"""Downloads: announced, resumed, verified, refused; against a local server."""

import errno
import hashlib
from pathlib import Path

import numpy as np
import pytest

from brainweave._core.exceptions import StudyError
from brainweave.study.public import download as module
from brainweave.study.public.download import (
    DownloadPlan,
    RemoteFile,
    cache_folder,
    download,
)

pytestmark = pytest.mark.network
CONTENT = np.random.default_rng(0).bytes(700_000)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(module, "_WAIT", 0.0)


def git_id(content):
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def make_plan(server, folder, content=CONTENT, **changes):
    server.files["data/a.bin"] = content
    options = {
        "size": len(content),
        "checksum": "sha256:" + hashlib.sha256(content).hexdigest(),
        **changes,
    }
    file = RemoteFile(server.url + "data/a.bin", "a.bin", **options)
    return DownloadPlan("Toy", (file,), folder)


@pytest.mark.parametrize("kind", ["sha256", "md5", "git"])
def test_a_file_arrives_whole_and_verified(server, tmp_path, kind):
    digest = (
        git_id(CONTENT) if kind == "git" else hashlib.new(kind, CONTENT).hexdigest()
    )
    plan = make_plan(server, tmp_path / "new" / "cache", checksum=f"{kind}:{digest}")
    (path,) = download(plan, progress=False)
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["a.bin"]


def test_progress_counts_the_bytes(server, tmp_path):
    seen = []
    download(make_plan(server, tmp_path), progress=lambda *step: seen.append(step))
    assert seen[-1] == (len(CONTENT), len(CONTENT), "a.bin")
    assert [step[0] for step in seen] == sorted(step[0] for step in seen)


def test_the_plan_says_what_how_much_and_where(server, tmp_path):
    plan = make_plan(server, tmp_path)
    assert (
        str(plan) == f"Toy: 1 file, 700.0 kB, from {server.url[7:-1]} into {tmp_path}"
    )
    assert plan.n_bytes == 700_000
    download(plan, progress=False)
    assert str(plan) == f"Toy: all 1 files are in {tmp_path}"
    unknown = make_plan(server, tmp_path / "x", size=None)
    assert "size unknown" in str(unknown)


def test_the_bar_announces_the_plan_on_standard_error(server, tmp_path, capsys):
    download(make_plan(server, tmp_path), progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Toy: 1 file, 700.0 kB" in err


def test_cached_files_need_no_network(server, tmp_path):
    plan = make_plan(server, tmp_path)
    download(plan, progress=False)
    offline = DownloadPlan(
        "Toy", (RemoteFile("http://127.0.0.1:9/a.bin", "a.bin"),), tmp_path
    )
    (path,) = download(offline, progress=False)
    assert path.read_bytes() == CONTENT
    assert len(server.gets("data/a.bin")) == 1


def test_a_broken_connection_is_resumed_where_it_stopped(server, tmp_path):
    plan = make_plan(server, tmp_path)
    server.break_after["data/a.bin"] = [300_000, 100_000]
    (path,) = download(plan, progress=False)
    assert path.read_bytes() == CONTENT
    ranges = [entry[2] for entry in server.gets("data/a.bin")]
    assert ranges == [None, "bytes=300000-", "bytes=400000-"]


def test_a_download_that_gave_up_is_resumed_by_the_next_call(
    server, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "_ATTEMPTS", 2)
    plan = make_plan(server, tmp_path)
    server.break_after["data/a.bin"] = [1000, 1000]
    with pytest.raises(StudyError, match=r"cannot be reached .*closed early.*resumed"):
        download(plan, progress=False)
    assert (tmp_path / "a.bin.part").stat().st_size == 2000
    assert not (tmp_path / "a.bin").exists()
    download(plan, progress=False)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.gets("data/a.bin")[-1][2] == "bytes=2000-"


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.ranges = False
    plan = make_plan(server, tmp_path)
    server.break_after["data/a.bin"] = [1000]
    (path,) = download(plan, progress=False)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_a_part_file_that_is_complete_or_too_long_is_sorted_out(server, tmp_path, size):
    plan = make_plan(server, tmp_path, size=size)
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    (path,) = download(plan, progress=False)
    assert path.read_bytes() == CONTENT
    path.unlink()
    (tmp_path / "a.bin.part").write_bytes(CONTENT + b"more")
    if size is None:  # only the checksum can tell
        with pytest.raises(StudyError, match="expected checksum"):
            download(plan, progress=False)
    (path,) = download(plan, progress=False)
    assert path.read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_removed(server, tmp_path):
    plan = make_plan(server, tmp_path, checksum="md5:" + "0" * 32)
    with pytest.raises(
        StudyError, match=r"data/a.bin does not have the expected .*md5"
    ):
        download(plan, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_an_error_at_once(server, tmp_path):
    plan = make_plan(server, tmp_path)
    del server.files["data/a.bin"]
    with pytest.raises(StudyError, match=r"a.bin cannot be downloaded: HTTP 404"):
        download(plan, progress=False)
    assert len(server.gets("data/a.bin")) == 1


def test_a_server_error_is_tried_again(server, tmp_path):
    plan = make_plan(server, tmp_path)
    server.files["data/a.bin"] = 503
    with pytest.raises(StudyError, match="503"):
        download(plan, progress=False)
    assert len(server.gets("data/a.bin")) == module._ATTEMPTS


def test_no_network_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_ATTEMPTS", 2)
    file = RemoteFile("http://127.0.0.1:9/a.bin", "a.bin", 10)
    plan = DownloadPlan("Toy", (file,), tmp_path)
    with pytest.raises(StudyError, match=r"cannot be reached .*Try again when online"):
        download(plan, progress=False)


def test_an_unknown_host_is_not_asked_again(tmp_path):
    file = RemoteFile("http://no-such-host.invalid/a.bin", "a.bin", 10)
    with pytest.raises(
        StudyError, match=r"no-such-host.invalid/a.bin cannot be reached"
    ):
        download(DownloadPlan("Toy", (file,), tmp_path), progress=False)


class FullDisk:
    """A file on a disk with room for some bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def write(self, data):
        if len(data) > self.room:
            self.file.write(data[: self.room])
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(data)
        return self.file.write(data)


def test_a_full_disk_is_named_and_the_rest_resumes(server, tmp_path, monkeypatch):
    plan = make_plan(server, tmp_path)
    real_open = Path.open
    with monkeypatch.context() as patch:
        patch.setattr(
            Path,
            "open",
            lambda self, mode="r", **o: FullDisk(real_open(self, mode, **o), 400_000),
        )
        with pytest.raises(
            StudyError, match=r"disk was full .*fetch again: it resumes"
        ):
            download(plan, progress=False)
    assert (tmp_path / "a.bin.part").stat().st_size == 400_000
    (path,) = download(plan, progress=False)
    assert path.read_bytes() == CONTENT
    assert server.gets("data/a.bin")[-1][2] == "bytes=400000-"


def test_too_little_room_is_said_before_downloading(server, tmp_path):
    plan = make_plan(server, tmp_path, size=10**18)
    with pytest.raises(StudyError, match=r"Toy needs 1.0 EB .* are free"):
        download(plan, progress=False)
    assert server.log == []


def test_the_cache_is_the_users_and_can_be_moved(tmp_path, monkeypatch):
    monkeypatch.delenv("BRAINWEAVE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder("x").parts[-2:] == ("brainweave", "x")
    monkeypatch.setenv("BRAINWEAVE_CACHE", str(tmp_path / "env"))
    assert cache_folder("x") == tmp_path / "env" / "x"
    assert cache_folder("x", tmp_path / "own") == tmp_path / "own" / "x"


@pytest.mark.parametrize(
    "name",
    ["../a.bin", "/etc/a.bin", "x/../../a.bin", "C:\\a.bin", "..\\a.bin", "", "a/"],
)
def test_names_cannot_leave_the_folder(tmp_path, name):
    file = RemoteFile("http://127.0.0.1:9/a.bin", name)
    with pytest.raises(StudyError, match="would lie outside of"):
        DownloadPlan("Toy", (file,), tmp_path)
    inside = RemoteFile("http://127.0.0.1:9/a.bin", "sub-01/..a.bin")
    assert DownloadPlan("Toy", (inside,), tmp_path).missing == [inside]


def test_a_file_of_another_size_is_refused_without_a_checksum(server, tmp_path):
    plan = make_plan(server, tmp_path, checksum=None, size=700_001)
    with pytest.raises(StudyError, match="has 700000 bytes, not the 700001"):
        download(plan, progress=False)
    assert not (tmp_path / "a.bin").exists()


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_a_file_that_changed_is_begun_again(server, tmp_path, monkeypatch, size):
    plan = make_plan(server, tmp_path, checksum=None, size=size)
    monkeypatch.setattr(module, "_ATTEMPTS", 1)
    server.break_after["data/a.bin"] = [1000]
    with pytest.raises(StudyError, match="closed early"):
        download(plan, progress=False)
    monkeypatch.setattr(module, "_ATTEMPTS", 5)
    changed = CONTENT[::-1]
    server.files["data/a.bin"] = changed
    (path,) = download(plan, progress=False)
    assert path.read_bytes() == changed
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_a_part_of_unknown_origin_is_not_continued(server, tmp_path):
    plan = make_plan(server, tmp_path, checksum=None)
    (tmp_path / "a.bin.part").write_bytes(b"x" * 1000)
    (path,) = download(plan, progress=False)
    assert path.read_bytes() == CONTENT
    plan = make_plan(server, tmp_path / "y", checksum=None, size=None)
    plan.folder.mkdir()
    (plan.folder / "a.bin.part").write_bytes(b"x" * 800_000)
    (plan.folder / "a.bin.part.tag").write_text('"another"')
    (path,) = download(plan, progress=False)
    assert path.read_bytes() == CONTENT
