import json
import os
import subprocess
import sys
import threading

import pytest

from brainweave._core.exceptions import InputError
from brainweave.evaluation.store import ResultStore


def test_a_record_is_kept_and_the_first_one_wins(tmp_path):
    store = ResultStore(tmp_path)
    assert store.put("a", {"x": 1})
    assert not store.put("a", {"x": 2})
    assert store.get("a") == {"x": 1}
    assert store.get("b") is None
    assert list(store.names()) == ["a"]
    assert len(store) == 1


def test_nothing_but_whole_records_is_left_behind(tmp_path):
    store = ResultStore(tmp_path)
    for _ in range(2):
        store.put("a", {"x": 1})
    with store.claim("work"):
        pass
    left = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.*"))
    assert left == ["cells/a.json", "store.json"]


def test_many_threads_put_one_record_once(tmp_path):
    store, kept = ResultStore(tmp_path), []
    threads = [
        threading.Thread(target=lambda n=n: kept.append(store.put("a", {"n": n})))
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(kept) == 1
    assert set(store.get("a")) == {"n"}


def test_a_damaged_record_is_set_aside_and_counts_as_missing(tmp_path):
    store = ResultStore(tmp_path)
    store.put("a", {"x": 1})
    path = tmp_path / "cells" / "a.json"
    path.write_text(path.read_text()[:5])
    with pytest.warns(RuntimeWarning, match=r"a\.json' is damaged"):
        assert store.get("a") is None
    assert not store.has("a")
    assert (tmp_path / "cells" / "a.damaged").exists()
    assert store.put("a", {"x": 2})


def test_a_claim_excludes_others_until_it_ends(tmp_path):
    first, second = ResultStore(tmp_path), ResultStore(tmp_path)
    with first.claim("work") as mine:
        assert mine
        with second.claim("work") as yours, second.claim("other") as other:
            assert not yours
            assert other
    with second.claim("work") as yours:
        assert yours


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_the_claim_of_a_killed_process_is_free_at_once(tmp_path):
    code = (
        "import sys, time\n"
        "from brainweave.evaluation.store import ResultStore\n"
        "with ResultStore(sys.argv[1]).claim('work') as mine:\n"
        "    print(mine, flush=True); time.sleep(60)\n"
    )
    store = ResultStore(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "True\n"
        with store.claim("work") as mine:
            assert not mine
        other.kill()
        other.wait()
    with store.claim("work") as mine:
        assert mine


def test_a_foreign_or_newer_folder_is_refused(tmp_path):
    (tmp_path / "store.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(InputError, match="is a store of format 99; this version reads"):
        ResultStore(tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="is a file; a store is a folder"):
        ResultStore(file)


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".hidden", "a" * 300])
def test_a_name_that_is_no_file_name_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="cannot name a record"):
        ResultStore(tmp_path).put(name, {})


def test_a_file_system_without_links_works(tmp_path, monkeypatch):
    def refuse(*args):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    store = ResultStore(tmp_path)
    assert store.put("a", {"x": 1})
    assert not store.put("a", {"x": 2})
    assert store.get("a") == {"x": 1}


# -- what a disk, or a hand, can do to a store -----------------------------------------


def test_a_record_that_was_changed_counts_as_missing(tmp_path):
    store = ResultStore(tmp_path)
    store.put("a", {"score": 0.25})
    path = tmp_path / "cells" / "a.json"
    path.write_text(path.read_text().replace("0.25", "0.95"))
    with pytest.warns(RuntimeWarning, match="is damaged"):
        assert store.get("a") is None


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_is_no_record_gives_way(tmp_path, kind):
    store = ResultStore(tmp_path)
    path = tmp_path / "cells" / "a.json"
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "nowhere")
    assert store.put("a", {"x": 1})
    assert store.get("a") == {"x": 1}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1', "[" * 100_000])
def test_a_damaged_index_is_told_in_one_sentence(tmp_path, content):
    (tmp_path / "store.json").write_text(content)
    with pytest.raises(InputError, match=r"store\.json' is damaged"):
        ResultStore(tmp_path)


@pytest.mark.parametrize("place", ["cells", "locks"])
def test_a_file_in_place_of_a_folder_is_told(tmp_path, place):
    (tmp_path / place).write_text("")
    with pytest.raises(InputError, match=f"{place}' is a file; a store is a folder"):
        ResultStore(tmp_path)
    (tmp_path / place).unlink()
    (tmp_path / place).symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match=f"{place}' is a link to nowhere"):
        ResultStore(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="flock")
def test_a_file_system_without_locks_works(tmp_path, monkeypatch):
    import errno
    import fcntl

    def refuse(*args):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    store = ResultStore(tmp_path)
    with (
        pytest.warns(RuntimeWarning, match="cannot be locked"),
        store.claim("work") as mine,
    ):
        assert mine


def test_a_lock_that_is_a_link_to_nowhere_is_replaced(tmp_path):
    store = ResultStore(tmp_path)
    (tmp_path / "locks" / "work.lock").symlink_to(tmp_path / "no" / "where")
    with store.claim("work") as mine:
        assert mine
