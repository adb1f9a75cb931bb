"""Downloads: announced, verified, refused; against a local server."""

import errno
import hashlib

import numpy as np
import pytest

from brainweave._core.exceptions import StudyError
from brainweave.study import public as module
from brainweave.study.public import (
    DownloadPlan,
    RemoteFile,
    cache_folder,
    download,
)

pytestmark = pytest.mark.network
CONTENT = np.random.default_rng(0).bytes(700_000)


def git_id(content):
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def make_plan(server, folder, content=CONTENT, **changes):
    server.files["data/a.bin"] = content
    options = {
        "size": len(content),
        "git_id": git_id(content),
        **changes,
    }
    file = RemoteFile(server.url + "data/a.bin", "a.bin", **options)
    return DownloadPlan("Toy", (file,), folder)


def test_a_file_arrives_whole_and_verified(server, tmp_path):
    plan = make_plan(server, tmp_path / "new" / "cache")
    (path,) = download(plan, progress=False)
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["a.bin"]


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


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_a_broken_connection_leaves_nothing_and_the_next_call_begins_again(
    server, tmp_path, size
):
    plan = make_plan(server, tmp_path, size=size)
    server.break_after["data/a.bin"] = [300_000]
    with pytest.raises(StudyError, match=r"a\.bin (sent 300000 bytes|does not)"):
        download(plan, progress=False)
    assert list(tmp_path.iterdir()) == []
    (path,) = download(plan, progress=False)
    assert path.read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_removed(server, tmp_path):
    plan = make_plan(server, tmp_path, git_id="0" * 40)
    with pytest.raises(
        StudyError, match=r"data/a.bin does not have the expected .*0000"
    ):
        download(plan, progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [404, 503])
def test_an_error_of_the_server_is_named(server, tmp_path, code):
    plan = make_plan(server, tmp_path)
    server.files["data/a.bin"] = code
    with pytest.raises(StudyError, match=f"cannot be downloaded .HTTP Error {code}"):
        download(plan, progress=False)


def test_no_network_says_so(tmp_path):
    file = RemoteFile("http://127.0.0.1:9/a.bin", "a.bin", 10)
    plan = DownloadPlan("Toy", (file,), tmp_path)
    with pytest.raises(
        StudyError, match=r"cannot be downloaded .*Try again when online"
    ):
        download(plan, progress=False)


def test_an_unknown_host_is_named(tmp_path):
    file = RemoteFile("http://no-such-host.invalid/a.bin", "a.bin", 10)
    with pytest.raises(
        StudyError, match=r"no-such-host.invalid/a.bin cannot be downloaded"
    ):
        download(DownloadPlan("Toy", (file,), tmp_path), progress=False)


def test_a_full_disk_is_named(server, tmp_path, monkeypatch):
    def full(content, out):
        out.write(content.read(1000))
        raise OSError(errno.ENOSPC, "No space left on device")

    plan = make_plan(server, tmp_path)
    monkeypatch.setattr(module.shutil, "copyfileobj", full)
    with pytest.raises(StudyError, match=r"disk was full .*fetch again"):
        download(plan, progress=False)
    assert list(tmp_path.iterdir()) == []


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
    plan = make_plan(server, tmp_path, git_id=None, size=700_001)
    with pytest.raises(StudyError, match="sent 700000 bytes instead of 700001"):
        download(plan, progress=False)
    assert not (tmp_path / "a.bin").exists()
