"""MATLAB files: the real ones, and small ones of every version."""

import base64
import os
import subprocess
import sys
import zlib

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.io import loadmat, savemat

from brainweave._core.exceptions import InputError, StudyError
from brainweave.study.formats import matlab
from brainweave.study.formats.matlab import (
    load_matlab,
    read_matlab,
    read_variables,
)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture
def in_this_process(monkeypatch):
    """Read sound files without a process for each of them."""
    monkeypatch.setattr(matlab, "read_matlab", lambda path: read_variables(str(path)))


def cell(arrays):
    entries = np.empty((1, len(arrays)), object)
    entries[0, :] = arrays
    return entries


def save_hdf5(path, **variables):
    """Write what MATLAB's ``save -v7.3`` writes: reversed dimensions, references."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in variables.items():
            if isinstance(value, list):
                references = np.empty((len(value), 1), h5py.ref_dtype)
                for number, entry in enumerate(value):
                    references[number, 0] = store(
                        file, f"#refs#/{name}{number}", entry
                    ).ref
                file.create_dataset(name, data=references, dtype=h5py.ref_dtype)
            else:
                store(file, name, value)
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(512))


def store(file, name, value):
    if isinstance(value, str):
        codes = np.array([[ord(letter)] for letter in value], np.uint16)
        item = file.create_dataset(name, data=codes)
        item.attrs["MATLAB_class"] = np.bytes_("char")
        return item
    return file.create_dataset(name, data=np.asarray(value).T)


def test_real_raider_images_load(real_data):
    folder = real_data / "raider_images"
    hemispheres = [folder / "image_data_lh.mat", folder / "image_data_rh.mat"]
    study = load_matlab(
        hemispheres, labels=folder / "label.mat", runs=np.repeat(range(1, 9), 7)
    )
    assert len(study) == 10
    assert study.summary()["samples"].unique().tolist() == [56]
    assert study.summary()["voxels"].unique().tolist() == [1000]
    assert study.summary()["runs"].unique().tolist() == [8]
    # 8 runs of all 7 categories
    for subject in study:
        for run in subject.run_ids:
            assert sorted(subject.labels[subject.runs == run]) == [1, 2, 3, 4, 5, 6, 7]
    left = loadmat(hemispheres[0])["image_data_lh"]
    right = loadmat(hemispheres[1])["image_data_rh"]
    assert_array_equal(study["03"].data()[5, :500], left[:, 5, 2])
    assert_array_equal(study["03"].data()[5, 500:], right[:, 5, 2])


def test_real_pieman_cell_loads(real_data):
    study = load_matlab(real_data / "pieman_htfa" / "weights.mat")
    assert len(study) == 36
    assert {subject.samples.shape for subject in study} == {(300, 100)}
    assert study[0].samples.dtype == np.float32
    assert study[0].labels is None


@pytest.mark.parametrize("hdf5", [False, True])
def test_arrays_of_three_dimensions_are_split_into_subjects(tmp_path, rng, hdf5):
    values = rng.normal(size=(4, 6, 3))  # voxels x samples x subjects
    path = tmp_path / "x.mat"
    save_hdf5(path, data=values) if hdf5 else savemat(path, {"data": values})
    study = load_matlab(path, labels=[1, 2, 3, 1, 2, 3], ids=["a", "b", "c"])
    assert study.ids == ["a", "b", "c"]
    assert_array_equal(study["b"].data(), values[:, :, 1].T)
    assert study["b"].labels.tolist() == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("hdf5", [False, True])
def test_cells_give_subjects_of_different_sizes(tmp_path, rng, hdf5):
    arrays = [rng.normal(size=(5 + i, 4 - i)) for i in range(3)]
    path = tmp_path / "x.mat"
    save_hdf5(path, data=arrays) if hdf5 else savemat(path, {"data": cell(arrays)})
    study = load_matlab(path)
    assert study.ids == ["01", "02", "03"]
    for subject, array in zip(study, arrays, strict=True):
        assert_array_equal(subject.data(), array)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("hdf5", [False, True])
def test_labels_as_text(tmp_path, rng, hdf5):
    save = save_hdf5 if hdf5 else lambda path, **content: savemat(path, content)
    savemat(tmp_path / "x.mat", {"data": rng.normal(size=(4, 3, 2))})
    words = ["face", "house", "cat"]
    save(tmp_path / "words.mat", labels=words if hdf5 else cell(words))
    study = load_matlab(tmp_path / "x.mat", labels=tmp_path / "words.mat")
    assert study[1].labels.tolist() == words


@pytest.mark.usefixtures("in_this_process")
def test_one_subject_is_a_matrix(tmp_path, rng):
    values = rng.normal(size=(4, 6, 1))  # MATLAB drops the last dimension of 1
    savemat(tmp_path / "x.mat", {"data": values[:, :, 0]})
    assert_array_equal(load_matlab(tmp_path / "x.mat")[0].data(), values[:, :, 0].T)


@pytest.mark.usefixtures("in_this_process")
def test_the_variable_is_chosen_or_asked_for(tmp_path, rng):
    path = tmp_path / "x.mat"
    content = {"a": rng.normal(size=(4, 6, 2)), "xyz": rng.normal(size=(4, 3))}
    savemat(path, content)
    assert len(load_matlab(path)) == 2  # the 3-D one
    savemat(path, {**content, "b": content["a"] + 1})
    with pytest.raises(StudyError, match=r"\['a', 'b'\] could be.*variable="):
        load_matlab(path)
    chosen = load_matlab(path, variable="b")
    assert_array_equal(chosen[0].data(), content["a"][:, :, 0].T + 1)
    with pytest.raises(StudyError, match=r"it has \['a', "):
        load_matlab(path, variable="c")


@pytest.mark.usefixtures("in_this_process")
def test_hemispheres_that_do_not_match_are_named(tmp_path, rng):
    paths = [tmp_path / "l.mat", tmp_path / "r.mat"]
    savemat(paths[0], {"l": rng.normal(size=(4, 6, 2))})
    savemat(paths[1], {"r": rng.normal(size=(4, 6, 3))})
    with pytest.raises(StudyError, match=r"r.mat' has \[6, 6, 6\] .*l.mat' \[6, 6\]"):
        load_matlab(paths)
    savemat(paths[1], {"r": rng.normal(size=(4, 5, 2))})
    with pytest.raises(StudyError, match=r"r.mat' has \[5, 5\] samples"):
        load_matlab(paths)


def test_broken_and_foreign_files_are_named(tmp_path, rng):
    path = tmp_path / "x.mat"
    with pytest.raises(StudyError, match=r"no file '.*x.mat'"):
        load_matlab(path)
    path.write_text("this is a text file, not a matrix" * 10)
    with pytest.raises(StudyError, match=r"x.mat' is not a readable MATLAB file"):
        load_matlab(path)
    savemat(path, {"data": rng.normal(size=(40, 60, 2))}, do_compression=True)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(StudyError, match=r"x.mat' is not a readable MATLAB file"):
        load_matlab(path)
    save_hdf5(path, data=rng.normal(size=(40, 60, 2)))
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(StudyError, match=r"x.mat' is not a readable MATLAB file"):
        load_matlab(path)
    savemat(path, {"label": np.arange(5.0)})
    with pytest.raises(StudyError, match="nothing in it could be the samples"):
        load_matlab(path)
    savemat(path, {"data": cell([np.zeros((2, 2)), "text"])})
    with pytest.raises(StudyError, match="entry 2 is not a 2-D array"):
        load_matlab(path)
    with pytest.raises(InputError, match="No MATLAB files"):
        load_matlab([])


@pytest.mark.usefixtures("in_this_process")
def test_labels_and_ids_that_do_not_fit_are_explained(tmp_path, rng):
    path = tmp_path / "x.mat"
    savemat(path, {"data": rng.normal(size=(4, 6, 2))})
    with pytest.raises(InputError, match="3 ids were given for 2 subjects"):
        load_matlab(path, ids=["a", "b", "c"])
    with pytest.raises(InputError, match="'01' has 6 samples, but labels"):
        load_matlab(path, labels=[1, 2])
    savemat(tmp_path / "two.mat", {"a": np.arange(6.0), "b": np.arange(6.0)})
    with pytest.raises(StudyError, match="should hold one vector of labels"):
        load_matlab(path, labels=tmp_path / "two.mat")


def test_reading_gives_matlabs_order_of_dimensions(tmp_path, rng):
    values = rng.normal(size=(2, 3, 4))
    save_hdf5(tmp_path / "x.mat", a=values, name="subject one")
    content = read_matlab(tmp_path / "x.mat")
    assert_array_equal(content["a"], values)
    assert str(content["name"]) == "subject one"


# files that mean harm, or are damaged


def test_links_out_of_a_file_are_refused(tmp_path, rng):
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["data"] = rng.normal(size=(2, 3, 4))
    path = tmp_path / "x.mat"
    with h5py.File(path, "w") as file:
        file["data"] = h5py.ExternalLink("secret.h5", "/data")
    with pytest.raises(StudyError, match="'/data' lies in other files"):
        load_matlab(path)


def test_arrays_that_lie_in_other_files_are_refused(tmp_path, rng):
    (tmp_path / "secret").write_bytes(rng.normal(size=24).tobytes())
    path = tmp_path / "x.mat"
    with h5py.File(path, "w") as file:
        external = [(str(tmp_path / "secret"), 0, 24 * 8)]
        file.create_dataset("data", (2, 3, 4), "f8", external=external)
    with pytest.raises(StudyError, match="'/data' lies in other files"):
        load_matlab(path)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["data"] = rng.normal(size=(2, 3, 4))
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout((2, 3, 4), "f8")
        layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "data", (2, 3, 4))
        file.create_virtual_dataset("data", layout)
    with pytest.raises(StudyError, match="'/data' lies in other files"):
        load_matlab(path)


def test_cells_of_cells_are_refused(tmp_path):
    path = tmp_path / "x.mat"
    with h5py.File(path, "w") as file:
        cells = file.create_dataset("data", (1, 1), h5py.ref_dtype)
        cells[0, 0] = cells.ref
    with pytest.raises(StudyError, match="entry 1 is not a 2-D array"):
        load_matlab(path)


def test_reader_that_crashes_or_hangs_is_one_clear_error(tmp_path, monkeypatch):
    path = tmp_path / "x.mat"
    savemat(path, {"data": np.zeros((2, 3, 4))})
    monkeypatch.setattr(matlab, "_READER", "import os; os.abort()")
    with pytest.raises(StudyError, match=r"x.mat' .*the reader crashed"):
        load_matlab(path)
    monkeypatch.setattr(matlab, "_READER", "import time; time.sleep(60)")
    monkeypatch.setattr(matlab, "_MIN_TIMEOUT", 0.2)
    with pytest.raises(StudyError, match=r"x.mat' .*the reader did not finish"):
        load_matlab(path)


def test_structs_sparse_matrices_and_nested_cells_are_left_out(tmp_path):
    import scipy.sparse

    path = tmp_path / "x.mat"
    savemat(
        path,
        {
            "s": {"a": 1.0, "b": "text"},
            "nested": cell([cell([np.eye(2)]), np.zeros((1, 1))]),
            "sparse": scipy.sparse.eye(3).tocsc(),
        },
    )
    content = read_matlab(path)
    assert list(content) == ["nested"]
    assert content["nested"][0] is None
    assert_array_equal(content["nested"][1], [[0]])
    savemat(tmp_path / "data.mat", {"data": np.zeros((2, 3, 4))})
    with pytest.raises(StudyError, match="should hold one vector of labels"):
        load_matlab(tmp_path / "data.mat", labels=path)


# found by changing bytes at random: it makes SciPy 1.17 read outside of its memory
CRASHES = (
    b"eNrzdQzxcXRSMNUzUPB1DNFNy8xJVQjISSxJyy/KtVIoyC/OrNBRcC5KTSxJTVHIz7NS8M3P"
    b"U/DLL1MwNFMwMLQyNrUyMVEwMjAyYyADMHr68gGpH0DMBsQcUBoEWIGYB4hZgJgZiJlgWoAi"
    b"KYkliSB9B0B65t1/dqn4wP516UIf9p16vv/0bRXDmsQj+099mrEzWOylvbwac7ib59P9rMs/"
    b"OiV6390v8rXS+nPlaXv/drtniqpf9t8HmtHw8o39iXfVqanqH/aXNV35qfnmyf52TanVWzq+"
    b"2hdwXD7Dcfer/YuuWPNjdW/3R2v7ps32e2h//0IFn8TT7/ZFLy6Iq9RfsxcvYp0cpX/GfvnL"
    b"szq5+67ZKzpdUuKw/GGfy+q3wEBwh/0hsZnPnI+d2v9k/8tvutMP7I9mcjjSwPDSHgBAWH0D"
)


def test_file_that_crashes_the_reader_is_one_clear_error(tmp_path):
    path = tmp_path / "x.mat"
    path.write_bytes(zlib.decompress(base64.b64decode(CRASHES)))
    with pytest.raises(StudyError, match=r"x.mat' is not a readable MATLAB file"):
        read_matlab(path)


MUTANTS = """
import os, random, sys
sys.path[:0] = {path!r}
from brainweave.study.formats.matlab import read_variables
good = open({good!r}, "rb").read()
read_variables({good!r})  # imports what it needs, once
ends = []
for number in range(32):
    rng = random.Random(number)
    data = bytearray(good)
    for _ in range(rng.choice([1, 2, 5])):
        data[rng.randrange(128, len(data))] = rng.choice([0, 1, 5, 14, 255])
    with open({good!r} + ".mutant", "wb") as file:
        file.write(data)
    child = os.fork()
    if child == 0:
        try:
            read_variables({good!r} + ".mutant")
        except Exception:
            os._exit(1)
        os._exit(0)
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(*ends)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes of Unix")
def test_changed_files_end_in_an_answer_or_in_the_death_of_the_reader(tmp_path, rng):
    good = tmp_path / "good.mat"
    savemat(good, {"data": cell([rng.normal(size=(2, 3)), "text"]), "s": {"a": 1}})
    script = MUTANTS.format(path=sys.path, good=str(good))
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    ends = [int(end) for end in done.stdout.split()]
    assert len(ends) == 32
    assert all(end in (0, 1) or end < 0 for end in ends)  # read, refused, dead
    assert sum(end < 0 for end in ends) < 12


def test_labels_can_be_given_by_the_ids_of_subjects(tmp_path, rng):
    path = tmp_path / "x.mat"
    savemat(path, {"data": rng.normal(size=(4, 3, 2))})
    study = load_matlab(path, labels={"02": [1, 2, 3], "01": [3, 2, 1]})
    assert study["01"].labels.tolist() == [3, 2, 1]
    with pytest.raises(InputError, match="no labels for subject '02'"):
        load_matlab(path, labels={"01": [3, 2, 1]})


def test_damaged_compression_and_absurd_magnitudes_are_refused(tmp_path, rng):
    path = tmp_path / "x.mat"
    data = rng.normal(size=(30, 8, 2))
    savemat(path, {"data": data}, do_compression=True)
    content = path.read_bytes()
    for where in rng.integers(136, len(content), size=4):
        flipped = bytearray(content)
        flipped[where] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        with pytest.raises(StudyError, match=r"x.mat' is not a readable MATLAB"):
            load_matlab(path)
    data[3, 2, 1] = -4e30
    savemat(path, {"data": data})
    with pytest.raises(StudyError, match=r"x.mat' has a value of magnitude 4e\+30"):
        load_matlab(path)


@pytest.mark.parametrize("hdf5", [False, True])
def test_the_process_passes_on_all_that_it_reads(tmp_path, rng, hdf5, monkeypatch):
    path, numbers = tmp_path / "x.mat", rng.normal(size=(2, 3, 4))
    entries = [rng.normal(size=(4, 5)), np.arange(3)[None], np.ones((1, 2), bool)]
    names = {"file": numbers, "allow_pickle": entries, "flags": numbers > 0}
    if hdf5:
        save_hdf5(path, **names)
    else:
        savemat(path, names | {"allow_pickle": cell([*entries, {"a": 1}])})
    expected = read_variables(str(path))
    monkeypatch.setattr("pickle.loads", None)
    found = read_matlab(path)
    assert list(found) == list(expected)
    for name, value in expected.items():
        own, wanted = (v if isinstance(v, list) else [v] for v in (found[name], value))
        assert [None if e is None else e.dtype for e in own] == [
            None if e is None else e.dtype for e in wanted
        ]
        for one, other in zip(own, wanted, strict=True):
            assert one is other is None or assert_array_equal(one, other) is None
    assert hdf5 or expected["allow_pickle"][-1] is None
