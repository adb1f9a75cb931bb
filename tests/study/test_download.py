"""Downloads: verified or refused; against a local server."""

import errno
import hashlib

import numpy as np
import pytest

from brainweave._core.exceptions import StudyError
from brainweave.study.public import cache_folder, download

pytestmark = pytest.mark.network
CONTENT = np.random.default_rng(0).bytes(700_000)
GIT_ID = hashlib.sha1(f"blob {len(CONTENT)}\0".encode() + CONTENT).hexdigest()


@pytest.fixture
def url(server):
    server.files["data/a.bin"] = CONTENT
    return server.url + "data/a.bin"


def test_a_file_arrives_whole_and_is_then_used_offline(url, tmp_path):
    path = download(url, tmp_path / "new" / "a.bin", GIT_ID)
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["a.bin"]
    assert download("http://127.0.0.1:9/a.bin", path, GIT_ID) == path


def test_a_broken_connection_leaves_nothing_and_the_next_call_begins_again(
    url, server, tmp_path
):
    server.break_after["data/a.bin"] = [300_000]
    with pytest.raises(StudyError, match=r"cannot be downloaded .*300000 bytes"):
        download(url, tmp_path / "a.bin", GIT_ID)
    assert list(tmp_path.iterdir()) == []
    assert download(url, tmp_path / "a.bin", GIT_ID).read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused(url, tmp_path):
    with pytest.raises(StudyError, match=r"a.bin does not have the expected .*0000"):
        download(url, tmp_path / "a.bin", "0" * 40)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [404, 503])
def test_an_error_of_the_server_is_named(url, server, tmp_path, code):
    server.files["data/a.bin"] = code
    with pytest.raises(StudyError, match=f"cannot be downloaded .HTTP Error {code}"):
        download(url, tmp_path / "a.bin", GIT_ID)


@pytest.mark.parametrize("host", ["127.0.0.1:9", "no-such-host.invalid"])
def test_no_network_says_so(tmp_path, host):
    with pytest.raises(StudyError, match=r"cannot be downloaded .*when online"):
        download(f"http://{host}/a.bin", tmp_path / "a.bin", GIT_ID)


def test_a_full_disk_is_named(url, tmp_path, monkeypatch):
    def full(path, content):
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(StudyError, match=r"disk was full .*fetch again"):
        download(url, tmp_path / "a.bin", GIT_ID)
    assert list(tmp_path.iterdir()) == []


def test_the_cache_is_the_users_and_can_be_moved(tmp_path, monkeypatch):
    monkeypatch.delenv("BRAINWEAVE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder("x").parts[-2:] == ("brainweave", "x")
    monkeypatch.setenv("BRAINWEAVE_CACHE", str(tmp_path / "env"))
    assert cache_folder("x") == tmp_path / "env" / "x"
    assert cache_folder("x", tmp_path / "own") == tmp_path / "own" / "x"
