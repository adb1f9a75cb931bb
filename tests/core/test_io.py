"""Files and folders appear whole or not at all."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from brainweave._core import io as _io
from brainweave._core.exceptions import InputError


def names(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))


def test_a_text_is_replaced_whole(tmp_path):
    path = tmp_path / "new" / "a.txt"
    _io.write_text(path, "one\n")
    _io.write_text(path, "two, ä\n")
    assert path.read_bytes() == "two, ä\n".encode()
    assert names(tmp_path) == ["new", "new/a.txt"]


def test_what_fails_midway_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def fail():
        with _io.atomic_path(path) as work:
            work.write_bytes(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_the_temporary_name_keeps_the_ending_and_fits_the_file_system(tmp_path):
    path = tmp_path / ("x" * 240 + ".nii.gz")
    with _io.atomic_path(path) as work:
        assert work.name.endswith(".nii.gz")
        work.write_bytes(b"image")
    assert path.read_bytes() == b"image"


def make(folder, **files):
    with _io.atomic_folder(folder) as work:
        for name, text in files.items():
            path = work / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)


def test_a_folder_is_replaced_file_by_file_of_ours(tmp_path):
    folder = tmp_path / "data"
    make(folder, index="1", sub__a="1", sub__b="1")
    (folder / "notes").write_text("mine")
    (folder / "sub" / "mine").write_text("mine")
    (folder / "results").mkdir()
    (folder / "results" / "r").write_text("mine")
    (folder / "link").symlink_to("notes")
    with _io.atomic_folder(
        folder, replaces=lambda: ["index", "sub/a", "sub/b"]
    ) as work:
        (work / "index").write_text("2")
        (work / "sub").mkdir()
        (work / "sub" / "a").write_text("2")
    assert names(folder) == [
        *("index", "link", "notes", "results", "results/r", "sub", "sub/a", "sub/mine"),
    ]
    assert (folder / "index").read_text() == "2"
    assert (folder / "link").read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_a_file_of_others_is_never_replaced(tmp_path):
    folder = tmp_path / "data"
    make(folder, index="1")
    with pytest.raises(InputError, match="was not written by brainweave"):
        make(folder, index="2")
    assert (folder / "index").read_text() == "1"
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_a_folder_that_fails_midway_leaves_nothing(tmp_path):
    def fail():
        with _io.atomic_folder(tmp_path / "data") as work:
            (work / "half").write_text("")
            raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        fail()
    assert names(tmp_path) == []


def test_an_unwritable_place_is_found_before_the_work(tmp_path):
    _io.check_can_write(tmp_path / "new" / "deep" / "m.safetensors")
    assert names(tmp_path) == []
    with pytest.raises(OSError, match="/proc"):
        _io.check_can_write(_io.Path("/proc/m.safetensors"))


def test_files_are_known_again_by_content(tmp_path):
    path = tmp_path / "a.nii"
    path.write_bytes(b"abc")
    stamp = _io.file_stamp(path)
    os.utime(path, (1, 1))
    assert not _io.has_changed(path, stamp)
    path.write_bytes(b"abx")
    assert _io.has_changed(path, stamp)
    path.unlink()
    assert _io.has_changed(path, stamp)


REPLACED = """
import os, signal, sys
from brainweave._core import io as _io
seen = [0]
def hook(event, arguments):
    if event in ("os.rename", "os.link", "shutil.rmtree", "os.symlink"):
        seen[0] += 1
        if seen[0] == {die_at}:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
with _io.atomic_folder(_io.Path({folder!r}), replaces=lambda: ["index"]) as work:
    (work / "index").write_text("2")
seen[0] = -100  # what follows is not ours: a tool that measures coverage writes files
"""


# two renames, three files of theirs, the removal of two folders
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
@pytest.mark.parametrize("die_at", range(1, 9))
def test_a_killed_replacement_loses_nothing(tmp_path, die_at):
    folder = tmp_path / "data"
    make(folder, index="1")
    (folder / "notes").write_text("mine")
    (folder / "sub").mkdir()
    (folder / "sub" / "mine").write_text("mine")
    (folder / "link").symlink_to("notes")
    script = REPLACED.format(die_at=die_at, folder=str(folder))
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == (-signal.SIGKILL if die_at < 8 else 0)
    old = next(tmp_path.glob("data.replaced-*"), None)
    assert folder.exists() == (die_at != 2)
    found = {n: f for f in (old, folder) if f and f.exists() for n in names(f)}
    assert {"index", "link", "notes", "sub", "sub/mine"} <= set(found)
    assert (found["index"] / "index").read_text() == ("1" if die_at < 3 else "2")
    for name in ("notes", "sub/mine"):
        assert (found[name] / name).read_text() == "mine"
    assert (found["link"] / "link").is_symlink()


def test_an_old_folder_comes_back_if_the_new_one_cannot_take_its_place(
    tmp_path, monkeypatch
):
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "index").write_text("old")
    rename = Path.rename

    def refuse(self, target):
        if self.name.startswith(".partial"):
            raise PermissionError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    replaced = _io.atomic_folder(folder, replaces=lambda: ["index"])
    with pytest.raises(PermissionError), replaced as work:
        (work / "index").write_text("new")
    assert [p.name for p in tmp_path.iterdir()] == ["study"]
    assert (folder / "index").read_text() == "old"
