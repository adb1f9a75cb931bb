"""Values written down: for people as JSON, for files without loss."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal

import brainweave as bw
from brainweave._core.exceptions import ModelFileError
from brainweave.persistence.codec import OpenFile, Writer, plain, problem_with


def there_and_back(value):
    writer = Writer()
    document = {"value": writer.encode(value, "value")}
    with OpenFile(Path("x"), document, writer.arrays).reading() as node:
        return node["value"].decode()


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -3,
        2**80,
        0.1,
        float("inf"),
        "été\n\0",
        [],
        [1, [2.5, None]],
        (1, (), "x"),
        {"a": (1, 2), 3: None, None: [True], ("t", 1): {}},
    ],
)
def test_values_come_back_as_they_were(value):
    again = there_and_back(value)
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.float32([1, np.nan]),
        np.zeros((0, 3)),
        np.array(2.5),
        np.array([True, False]),
        np.array(["a", "été"]),
        np.array(["a", None, 3, (1, 2)], dtype=object),
        np.array([["a", "b"]], dtype=object),
    ],
)
def test_arrays_and_labels_come_back_as_they_were(array):
    again = there_and_back([array])[0]
    assert_array_equal(again, array)
    assert (again.dtype, again.shape) == (array.dtype, array.shape)


def test_nan_numpys_numbers_and_sparse_matrices_come_back():
    nan, one, matrix = there_and_back(
        (float("nan"), np.int8(1), scipy.sparse.eye_array(3, format="csc"))
    )
    assert np.isnan(nan)
    assert type(one) is int
    assert_array_equal(matrix.toarray(), np.eye(3))


def test_what_is_referred_to_twice_is_stored_once():
    array, writer = np.arange(3.0), Writer()
    writer.encode({"a": array, "b": [array]}, "x")
    assert list(writer.arrays) == ["x.a"]


@pytest.mark.parametrize("value", [object(), len, 1j, b"x", {1, 2}])
def test_anything_else_is_refused(value):
    with pytest.raises(ModelFileError, match=r"x is a .* a model file cannot hold"):
        Writer().encode(value, "x")


def test_values_for_people_are_json():
    value = {
        1: np.float64(0.5),
        "set": {"b", "a"},
        "rows": [np.arange(2), (None, True)],
        "path": Path("x"),
    }
    assert plain(value, other=str) == {
        "1": 0.5,
        "set": ["a", "b"],
        "rows": [[0, 1], [None, True]],
        "path": "x",
    }
    assert plain([np.zeros((2, 3))], arrays=False) == ["array of shape (2, 3)"]
    assert plain(int) == "<class 'int'>"


@pytest.mark.parametrize(
    ("value", "kind", "problem"),
    [
        (3, int, None),
        (True, int, "is not of type int"),
        (3, float, None),
        (True, float, "is not of type float"),
        ([1, 2], [int], None),
        ((1, 2), [int], "is not a list"),
        ([1, "2"], [int], "is not of type int"),
        ((1,), (int,), None),
        (3, lambda value: value > 3, "has a wrong value"),
        (np.zeros((2, 3)), "n k", None),
        (np.zeros((2, 4)), "n k", "different shapes"),
        (np.zeros((2, 2)), "n 2", None),
        (np.zeros((2, 3)), "n 2", "different shapes"),
        (np.zeros(2), "n k", "1 dimensions where 2"),
        (np.zeros(2, int), "n", "it holds int64"),
        (np.zeros(2, int), "n of int", None),
        (np.zeros(2, bool), "n of real", None),
        (np.array(["a", "b"]), "n of any", None),
        (np.eye(2), "n 2 of sparse", "is not an array of numbers, csr_array"),
        (scipy.sparse.csr_array(np.eye(2)), "n 2 of sparse", None),
        ([np.zeros(5), np.zeros(7)], ["own"], None),
        ([np.zeros(5)], ["k"], "different shapes"),
    ],
)
def test_kinds(value, kind, problem):
    found = problem_with(value, kind, {"n": 2, "k": 3})
    assert (found is None) if problem is None else (problem in found)


def test_a_map_alone_is_loaded_where_its_aligner_was_never_used(tmp_path):
    X = [np.random.default_rng(i).normal(size=(20, 10)) for i in range(2)]
    model = bw.RobustSRM(2, random_state=0, tol=0, max_iter=2).fit(X)
    path = bw.save(model.maps_[0], tmp_path / "map.safetensors")
    code = f"import brainweave; print(type(brainweave.load({str(path)!r})).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "RobustMap"
