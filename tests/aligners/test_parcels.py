import numpy as np
import pytest
from numpy.testing import assert_array_equal

from brainweave._core.exceptions import InputError
from brainweave.basis.places import labels_at


class Grid:
    """A volume with a mask, or an atlas: data and where they lie."""

    def __init__(self, values, affine):
        self.mask = self.dataobj = np.asarray(values)
        self.affine = affine


@pytest.mark.parametrize(
    ("shift", "expected"),
    [
        (0.0, [1, 2, 3]),
        (0.4, [1, 2, 3]),  # 0.4 of a voxel to the right: still nearest
        (0.6, [2, 3, 0]),
        (-0.4, [1, 2, 3]),
        (-0.6, [0, 1, 2]),
    ],
)
def test_voxels_have_the_label_of_the_nearest_voxel_of_the_atlas(shift, expected):
    atlas = Grid(np.array([1, 2, 3]).reshape(3, 1, 1), np.diag([2.0, 2.0, 2.0, 1.0]))
    affine = atlas.affine.copy()
    affine[0, 3] = 2 * shift
    space = Grid(np.ones((3, 1, 1), bool), affine)
    assert_array_equal(labels_at(atlas, space, "X[0]"), expected)


@pytest.mark.parametrize(
    ("values", "kind"),
    [([1.0, 2.0, 0.0], "i"), ([1.5, 2.0, 0.0], "f"), ([1, 2, 0], "i")],
)
def test_whole_numbers_of_an_atlas_are_integers(values, kind):
    space = Grid(np.ones((3, 1, 1), bool), np.eye(4))
    for shape in ((3, 1, 1), (3, 1, 1, 1)):
        atlas = Grid(np.array(values).reshape(shape), np.eye(4))
        labels = labels_at(atlas, space, "X[0]")
        assert labels.dtype.kind == kind
        assert_array_equal(labels, values)
    maps = Grid(np.ones((3, 1, 1, 2)), np.eye(4))
    with pytest.raises(InputError, match="Probabilistic atlases must be turned"):
        labels_at(maps, space, "X[0]")
