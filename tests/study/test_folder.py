"""The plain folder format: exact round trips, and changes that are noticed."""

import contextlib
import errno
import json
import os
import string
import subprocess
import sys

import nibabel as nib
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from brainweave._core.exceptions import InputError, StudyError
from brainweave.study import Study, Subject
from brainweave.study.spaces import VolumeSpace


def make_space(n_voxels):
    mask = np.zeros((3, 4, 2), np.uint8)
    mask.flat[:n_voxels] = 1
    return VolumeSpace(nib.Nifti1Image(mask, np.diag([2.0, 2.0, 2.0, 1.0])))


def make_study(dtype=np.float32):
    rng = np.random.default_rng(0)
    return Study(
        [
            Subject(
                "sub-01",
                rng.normal(size=(4, 5)).astype(dtype),
                labels=["face", None, "ho\tuse", 'a "quoted"\nname'],
                runs=["r1", "r1", "r2", "r2"],
                onsets=[0.1, 1 / 3, np.nan, 1e-17],
                stimuli=[10, 11, 12, 13],
                space=make_space(5),
            ),
            Subject("02", rng.normal(size=(3, 6)), labels=["1", "2", "3"]),
            Subject("03", rng.normal(size=(2, 5)), labels=[1, 2], space=make_space(5)),
        ],
        name="toy study",
    )


def assert_same(a, b):
    assert a.name == b.name
    assert a.ids == b.ids
    for left, right in zip(a, b, strict=True):
        assert_array_equal(left.data(), right.data())
        assert left.samples.dtype == right.samples.dtype
        assert left.space == right.space
        for name in ("labels", "runs", "onsets", "stimuli"):
            one, other = getattr(left, name), getattr(right, name)
            if one is None:
                assert other is None
            else:
                assert one.dtype.kind == other.dtype.kind
                assert_array_equal(one, other)


def test_round_trip_is_exact(tmp_path):
    study = make_study()
    saved = study.save(tmp_path / "out")
    assert_same(study, saved)
    assert_same(study, Study.open(tmp_path / "out", verify=True))


def test_opened_samples_are_mapped_and_read_only(tmp_path):
    opened = make_study().save(tmp_path / "out")
    assert isinstance(opened[0].samples, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        opened[0].samples[0, 0] = 1


def test_folder_is_plain(tmp_path):
    make_study().save(tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [
        "space-1.nii.gz",  # one mask, since two subjects share it
        "study.json",
        "sub-01.json",
        "sub-01.npy",
        "sub-02.json",
        "sub-02.npy",
        "sub-03.json",
        "sub-03.npy",
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    table = json.loads((tmp_path / "out" / "sub-02.json").read_text())
    assert table["labels"] == ["1", "2", "3"]
    assert table["runs"] is None
    index = json.loads((tmp_path / "out" / "study.json").read_text())
    assert index["subjects"][1]["samples"]["shape"] == [3, 6]


text = st.text(string.printable + "äß漢\u2028", max_size=8)


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    labels=st.lists(
        st.one_of(st.none(), text.filter(lambda t: "\x00" not in t)),
        min_size=1,
        max_size=6,
    ),
    ids=st.lists(text.filter(bool), min_size=1, max_size=4, unique=True),
)
def test_any_text_survives_as_label_or_id(tmp_path_factory, labels, ids):
    subjects = [Subject(id, np.ones((len(labels), 1)), labels=labels) for id in ids]
    study = Study(subjects)
    folder = tmp_path_factory.mktemp("any") / "s"
    assert_same(study, study.save(folder))


@pytest.mark.parametrize(
    "ids",
    [["a/b", "a_b", "a:b"], ["A", "a"], ["..", "."], ["x" * 300], ["sub-1", "1"]],
)
def test_ids_unsafe_as_file_names_keep_files_apart(tmp_path, ids):
    study = Study([Subject(id, np.full((2, 2), i)) for i, id in enumerate(ids)])
    opened = study.save(tmp_path / "deep" / "er" / "out")
    assert opened.ids == ids
    assert [s.data()[0, 0] for s in opened] == list(range(len(ids)))
    assert [p.name for p in tmp_path.iterdir()] == ["deep"]


def test_samples_can_be_stored_in_another_type(tmp_path):
    opened = make_study().save(tmp_path / "out", dtype="float16")
    assert opened[0].samples.dtype == np.float16


def test_existing_folders_are_not_replaced_unasked(tmp_path):
    study = make_study()
    study.save(tmp_path / "out")
    with pytest.raises(StudyError, match=r"exists.*overwrite=True"):
        study.save(tmp_path / "out")
    replaced = study.subset(["02"]).save(tmp_path / "out", overwrite=True)
    assert replaced.ids == ["02"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_is_no_study_is_never_replaced(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "only_copy.txt").write_text("years of work")
    with pytest.raises(StudyError, match=r"holds no study .*not replaced"):
        make_study().save(tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "only_copy.txt").exists()


def test_a_study_can_be_saved_over_itself(tmp_path):
    study = make_study().subset(["02", "03"]).save(tmp_path / "out")
    expected = study.zscore(by="all")["02"].data()
    again = study.zscore(by="all").save(tmp_path / "out", overwrite=True)
    assert_array_equal(again["02"].data(), expected)


class BrokenSource:
    shape = (3, 2)
    dtype = np.dtype(np.float32)

    def __init__(self, error):
        self.error = error

    def read(self):
        raise self.error


def test_a_failure_leaves_nothing_behind(tmp_path):
    study = Study([*make_study(), Subject("x", BrokenSource(StudyError("no scan")))])
    with pytest.raises(StudyError, match="no scan"):
        study.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_replacement_keeps_the_old_study(tmp_path):
    old = make_study().save(tmp_path / "out")
    broken = Study([Subject("x", BrokenSource(StudyError("no scan")))])
    with pytest.raises(StudyError, match="no scan"):
        broken.save(tmp_path / "out", overwrite=True)
    assert_same(old, Study.open(tmp_path / "out", verify=True))


def test_a_full_disk_is_named_and_leaves_nothing_behind(tmp_path):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    study = Study([*make_study(), Subject("x", BrokenSource(full))])
    with pytest.raises(StudyError, match=r"disk was full before '.*out' was complete"):
        study.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_subject_cannot_be_saved(tmp_path):
    empty = Subject("x", np.zeros((2, 2))).select([])
    with pytest.raises(StudyError, match="'x' has no samples"):
        Study([empty]).save(tmp_path / "out")


@pytest.mark.parametrize("name", ["sub-01.npy", "sub-01.json", "space-1.nii.gz"])
def test_missing_and_truncated_files_are_named_on_opening(tmp_path, name):
    make_study().save(tmp_path / "out")
    path = tmp_path / "out" / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(StudyError, match=rf"{name}' was cut off"):
        Study.open(tmp_path / "out")
    path.unlink()
    with pytest.raises(StudyError, match=rf"{name}' is missing"):
        Study.open(tmp_path / "out")


@pytest.mark.parametrize("name", ["sub-01.json", "space-1.nii.gz"])
def test_edited_small_files_are_named_on_opening(tmp_path, name):
    make_study().save(tmp_path / "out")
    flip_last_byte(tmp_path / "out" / name)
    with pytest.raises(StudyError, match=rf"{name}' was edited or damaged"):
        Study.open(tmp_path / "out")


def test_edited_samples_are_named_when_verified(tmp_path):
    make_study().save(tmp_path / "out")
    flip_last_byte(tmp_path / "out" / "sub-02.npy")
    Study.open(tmp_path / "out", verify=False)
    for verify in (True, None):
        with pytest.raises(StudyError, match=r"sub-02.npy' was edited or damaged"):
            Study.open(tmp_path / "out", verify=verify)


def test_large_studies_are_verified_on_request_only(tmp_path, monkeypatch):
    make_study().save(tmp_path / "out")
    flip_last_byte(tmp_path / "out" / "sub-02.npy")
    monkeypatch.setattr("brainweave.study.formats.folder._VERIFIED_BYTES", 100)
    Study.open(tmp_path / "out")


def test_a_replaced_array_of_the_same_size_is_named(tmp_path):
    make_study().save(tmp_path / "out")
    path = tmp_path / "out" / "sub-02.npy"
    np.save(path, np.load(path).reshape(6, 3))
    with pytest.raises(StudyError, match=r"sub-02.npy' .*replaced: it holds \(6, 3\)"):
        Study.open(tmp_path / "out")


def flip_last_byte(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def edit_index(folder, **changes):
    path = folder / "study.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_damaged_edited_or_foreign_index_is_named(tmp_path):
    make_study().save(tmp_path / "out")
    path = tmp_path / "out" / "study.json"
    good = path.read_text()
    edit_index(tmp_path / "out", name="other")
    with pytest.raises(StudyError, match=r"study.json' was edited"):
        Study.open(tmp_path / "out")
    edit_index(tmp_path / "out", version=99)
    with pytest.raises(StudyError, match=r"format version 99.*reads version 2"):
        Study.open(tmp_path / "out")
    path.write_text(good[:200])
    with pytest.raises(StudyError, match=r"study.json' is cut off"):
        Study.open(tmp_path / "out")
    path.write_text("[]")
    with pytest.raises(StudyError, match="does not describe a brainweave study"):
        Study.open(tmp_path / "out")
    path.unlink()
    with pytest.raises(StudyError, match=r"no study.json"):
        Study.open(tmp_path / "out")
    with pytest.raises(StudyError, match="Check the path"):
        Study.open(tmp_path / "nowhere")


def test_an_index_cannot_point_outside_its_folder(tmp_path):
    from brainweave.study.formats.folder import _index_checksum

    make_study().save(tmp_path / "out")
    path = tmp_path / "out" / "study.json"
    index = json.loads(path.read_text())
    index["subjects"][0]["samples"]["file"] = "../secret.npy"
    index["checksum"] = _index_checksum(index)
    path.write_text(json.dumps(index))
    with pytest.raises(StudyError, match=r"is '../secret.npy' or a link"):
        Study.open(tmp_path / "out")
    index["subjects"][0] = {"id": "x"}
    index["checksum"] = _index_checksum(index)
    path.write_text(json.dumps(index))
    with pytest.raises(StudyError, match="lacks an entry"):
        Study.open(tmp_path / "out")


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_conversion_reports_progress_and_runs_in_parallel(tmp_path, n_jobs):
    study = make_study()
    seen = []
    saved = study.save(
        tmp_path / "out",
        n_jobs=n_jobs,
        progress=lambda done, total, id: seen.append((done, total, id)),
    )
    assert [entry[:2] for entry in seen] == [(1, 3), (2, 3), (3, 3)]
    assert {entry[2] for entry in seen} == {"sub-01", "02", "03"}
    assert_same(study, saved)


# what is replaced, and what a crash leaves


def files_of(folder):
    return sorted(path.name for path in folder.iterdir())


def test_replacing_changes_only_the_files_of_the_study(tmp_path):
    out = tmp_path / "out"
    make_study().save(out)
    (out / "sub-09.npy").write_text("mine")
    (out / "notes").mkdir()
    (out / "notes" / "table.csv").write_text("1,2")
    before = files_of(out)
    small = make_study().subset(["02"])
    for _ in range(3):
        assert_same(small, small.save(out, overwrite=True))
        assert len(files_of(out)) < len(before)
        assert (out / "sub-09.npy").read_text() == "mine"
        assert (out / "notes" / "table.csv").read_text() == "1,2"
    assert files_of(tmp_path) == ["out"]


def test_open_maps_stay_as_they_were_when_a_study_is_replaced(tmp_path):
    study = make_study()
    opened = study.save(tmp_path / "out")
    study.zscore("all").save(tmp_path / "out", overwrite=True)
    assert_same(study, opened)


KILLED = """
import os, shutil, sys
sys.path[:0] = {path!r}
import numpy as np
from pathlib import Path
from brainweave.study import Study, Subject
count = 0
def rename(self, other, real=Path.rename):
    global count
    count += 1
    if count == {kill_at}:
        os.kill(os.getpid(), 9)
    return real(self, other)
def replace(a, b, real=os.replace):
    rename(Path(a), b, lambda x, y: real(x, y))
def unlink(self, missing_ok=False, real=Path.unlink):
    rename(self, missing_ok, real)
def rmtree(path, real=shutil.rmtree, **how):
    rename(path, None, lambda x, _: real(x, **how))
Path.rename, Path.unlink, os.replace = rename, unlink, replace
shutil.rmtree = rmtree
subjects = [Subject(str(i), np.full((3, 4), 9.0)) for i in (1, 2)]
def progress(done, total, id):
    if {kill_at} == 0:
        os.kill(os.getpid(), 9)
Study(subjects).save({folder!r}, overwrite=True, progress=progress)
"""


# at the first subject, at its table, at the index, before the old study is renamed
# away, between both renames, and before the old one is removed
@pytest.mark.parametrize(
    ("exists", "kill_at"),
    [(True, n) for n in (0, 1, 5, 7, 8, 9)] + [(False, n) for n in (0, 1, 5, 7)],
)
def test_killed_savers_leave_a_whole_study(tmp_path, exists, kill_at):
    out = tmp_path / "out"
    study = make_study()
    if exists:
        study.save(out)
    script = KILLED.format(path=sys.path, kill_at=kill_at, folder=str(out))
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -9
    assert len(list(tmp_path.iterdir())) == exists + 1
    if exists and kill_at < 9:
        whole = out if kill_at < 8 else next(tmp_path.glob("out.replaced-*"))
        assert_same(study, Study.open(whole))
    elif exists:
        assert Study.open(out).ids == ["1", "2"]
    else:
        assert not out.exists()
    assert_same(study, study.save(out, overwrite=True))
    index = (out / "study.json").read_text()
    assert all(name in index for name in files_of(out) if name != "study.json")


def test_a_study_behind_a_link_is_replaced_where_it_lies(tmp_path):
    study = make_study()
    study.save(tmp_path / "disk" / "out")
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "out")
    small = study.subset(["02"])
    assert_same(small, small.save(tmp_path / "out", overwrite=True))
    assert (tmp_path / "out").is_symlink()
    assert_same(small, Study.open(tmp_path / "disk" / "out"))


def test_files_that_a_damaged_index_does_not_list_stay(tmp_path):
    study = make_study()
    study.save(tmp_path / "out")
    (tmp_path / "out" / "study.json").write_text("{")
    before = {p: p.read_bytes() for p in (tmp_path / "out").glob("sub-*")}
    with pytest.raises(InputError, match="was not written by brainweave"):
        study.save(tmp_path / "out", overwrite=True)
    assert before == {p: p.read_bytes() for p in before}


def test_labels_of_any_length_survive(tmp_path):
    label = "x" * 200_000
    study = Study([Subject("1", np.zeros((2, 2)), labels=[label, "b"])])
    assert study.save(tmp_path / "out")[0].labels[0] == label


def test_which_samples_aligned_survives(tmp_path):
    aligned = np.array([True, False, True])
    study = Study([Subject("1", np.eye(3), aligned=aligned), Subject("2", np.eye(3))])
    saved = study.save(tmp_path / "out")
    assert saved["1"].aligned.tolist() == aligned.tolist()
    assert saved["2"].aligned is None


# folders with right checksums and wrong content


def forge(folder, change):
    """Change an index, and make its checksum right again."""
    from brainweave.study.formats.folder import _index_checksum

    path = folder / "study.json"
    index = json.loads(path.read_text())
    change(index)
    index["checksum"] = _index_checksum(index)
    path.write_text(json.dumps(index))


def test_links_are_not_followed(tmp_path):
    make_study().save(tmp_path / "out")
    path = tmp_path / "out" / "sub-01.npy"
    path.rename(tmp_path / "elsewhere.npy")
    path.symlink_to(tmp_path / "elsewhere.npy")
    with pytest.raises(StudyError, match=r"sub-01.npy' or a link"):
        Study.open(tmp_path / "out")


def paths_in(value, path=()):
    """List the ways to everything in a tree of JSON."""
    yield path
    entries = value.items() if isinstance(value, dict) else ()
    entries = enumerate(value) if isinstance(value, list) else entries
    for key, entry in entries:
        yield from paths_in(entry, (*path, key))


WRONG = [None, -1, 1.5, 10**30, "x", "../x", "a\0b", [], {}, True, [[]], float("nan")]


def test_wrong_content_is_a_study_error_or_a_study(tmp_path):
    make_study().save(tmp_path / "out")
    path = tmp_path / "out" / "study.json"
    good = json.loads(path.read_text())
    rng = np.random.default_rng(0)
    ways = [
        way for way in paths_in(good) if way and way[0] not in ("format", "version")
    ]
    refused = 0
    for _ in range(400):
        way = ways[rng.integers(len(ways))]
        wrong = WRONG[rng.integers(len(WRONG))]

        def change(index, way=way, wrong=wrong):
            for key in way[:-1]:
                index = index[key]
            index[way[-1]] = wrong

        path.write_text(json.dumps(good))
        forge(tmp_path / "out", change)
        try:
            Study.open(tmp_path / "out").summary()
        except StudyError:
            refused += 1
    assert refused > 200


def test_wrong_tables_are_study_errors(tmp_path):
    import hashlib

    make_study().save(tmp_path / "out")
    path = tmp_path / "out" / "sub-01.json"
    good = path.read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(200):
        data = bytearray(good)
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(len(data))
            data[at : at + rng.integers(0, 3)] = rng.bytes(rng.integers(0, 3))
        path.write_bytes(data)

        def change(index, data=data):
            table = index["subjects"][0]["table"]
            table["bytes"] = len(data)
            table["sha256"] = hashlib.sha256(data).hexdigest()

        forge(tmp_path / "out", change)
        with contextlib.suppress(StudyError):
            Study.open(tmp_path / "out").summary()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [None, "float32", ">f8"])
def test_some_voxels_of_all_samples_are_one_stretch_of_the_file(
    tmp_path, monkeypatch, order, dtype
):
    from brainweave.study.formats import folder

    monkeypatch.setattr(folder, "_WRITTEN_BYTES", 3 * 7 * 8)  # a few voxels at a time
    values = np.asarray(np.random.default_rng(0).normal(size=(7, 25)), order=order)
    saved = Study([Subject("a", values)]).save(tmp_path / "out", dtype=dtype)
    samples = saved[0].samples
    assert samples.flags.f_contiguous
    assert not samples.flags.c_contiguous
    assert samples[:, 4:9].flags.f_contiguous
    assert_array_equal(samples, values.astype(dtype or values.dtype))
    assert_same(saved, Study.open(tmp_path / "out", verify=True))


def test_folders_whose_files_are_in_c_order_open_as_before(tmp_path):
    from brainweave.study.formats import folder

    study = make_study()
    study.save(tmp_path / "out")
    index = json.loads((tmp_path / "out" / "study.json").read_text())
    for entry, subject in zip(index["subjects"], study, strict=True):
        path = tmp_path / "out" / entry["samples"]["file"]
        np.save(path, np.ascontiguousarray(subject.data()))
        entry["samples"] |= folder.describe_file(path)
    index["checksum"] = folder._index_checksum(index)
    (tmp_path / "out" / "study.json").write_text(json.dumps(index))
    opened = Study.open(tmp_path / "out", verify=True)
    assert opened[0].samples.flags.c_contiguous
    assert_same(study, opened)


def test_a_study_that_somebody_else_saved_meanwhile_is_not_replaced(tmp_path):
    theirs = Study([Subject("x", np.eye(3))])

    def meanwhile(done, total, id):
        if done == 1:
            theirs.save(tmp_path / "out")

    with pytest.raises(StudyError, match=r"out. exists\. Choose another folder"):
        make_study().save(tmp_path / "out", progress=meanwhile)
    assert Study.open(tmp_path / "out").ids == ["x"]
    assert files_of(tmp_path) == ["out"]
