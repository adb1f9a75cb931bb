"""Lazy samples, views on them, and an import that stays light."""

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import brainweave.study
from brainweave.study.subject import View, is_source, read_samples


class Waiting:
    shape = (4, 3)
    dtype = np.dtype(np.float32)

    def read(self):
        return np.arange(12, dtype=np.float32).reshape(4, 3)


class Columns:
    """Like an HDF5 dataset: sliced, but no array."""

    shape = (4, 3)
    dtype = np.dtype(np.float32)

    def __init__(self):
        self.asked = []

    def __getitem__(self, key):
        self.asked.append(key)
        return Waiting().read()[key]


def test_a_source_is_known_by_what_it_can():
    assert is_source(Waiting())
    assert is_source(View(Waiting(), np.array([1])))
    assert not is_source(Columns())
    assert not is_source(np.zeros((2, 2)))


@pytest.mark.parametrize("parent", [Waiting(), Columns(), Waiting().read()])
def test_views_give_the_same_from_every_kind_of_parent(parent):
    rows = np.array([3, 1, 0])
    whole = Waiting().read()[rows]
    view = View(parent, rows)
    assert view.shape == whole.shape
    assert len(view) == 3
    assert_array_equal(read_samples(view), whole)
    assert_array_equal(view[:, 1:], whole[:, 1:])
    assert_array_equal(view[:, -1], whole[:, -1])
    assert_array_equal(view[1], whole[1])
    scored = View(view, np.arange(3), np.array([0, 0, 0]))
    expected = (whole - whole.mean(0)) / whole.std(0)
    assert_allclose(scored[:, [0, 2]], expected[:, [0, 2]], rtol=1e-6)
    assert_allclose(np.asarray(scored), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="a copy is needed"):
        np.array(scored, copy=False)


def test_views_ask_for_the_columns_they_need():
    parent = Columns()
    View(parent, np.array([0]))[:, 1:2]
    assert parent.asked == [(slice(None), slice(1, 2))]


def test_a_view_of_a_view_is_one_view():
    view = View(View(Waiting(), np.array([3, 2, 1])), np.array([2, 0]))
    assert isinstance(view.parent, Waiting)
    assert view.rows.tolist() == [1, 3]


def test_importing_the_study_layer_stays_light():
    code = (
        "import sys, brainweave.study.study, brainweave.study.formats.folder\n"
        "heavy = {'nibabel', 'nilearn', 'pandas', 'matplotlib', 'h5py', 'torch'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_public_names_resolve():
    for name in brainweave.study.__all__:
        assert getattr(brainweave.study, name).__name__ == name
    with pytest.raises(AttributeError, match=r"No brainweave\.study attribute load"):
        brainweave.study.load_dicom  # noqa: B018
    assert "Study" in dir(brainweave.study)
