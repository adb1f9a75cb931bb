"""Figures are tested by the data they hold, not by their pixels."""

import io
import warnings
from dataclasses import dataclass, field
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from numpy.testing import assert_allclose

from brainweave import GDM, PaperGDM, compare_methods
from brainweave._core.exceptions import InputError
from brainweave.plotting import (
    palette,
    plot_accuracy,
    plot_brain,
    plot_confusion,
    plot_sequences,
    plot_shared_space,
)
from brainweave.plotting.model import fits_glass_brain
from brainweave.plotting.results import list_results
from brainweave.plotting.style import UNLABELLED, clean_text
from brainweave.study import Study, Subject
from brainweave.study.spaces import VolumeSpace
from brainweave.study.surface import SurfaceSpace

# Names that break careless figures: a formula, markup, a name Matplotlib would hide.
AWKWARD = ["$\\frac{1}$", "<b>&", "_hidden", "日本"]


@dataclass
class FakeResult:
    scores: Any
    method: str = "GDM"
    protocol: str = "joint"
    chance: float = 0.25
    categories: list = field(default_factory=lambda: ["a", "b"])
    confusion: Any = field(default_factory=lambda: np.array([[3, 1], [0, 4]]))


@pytest.fixture(scope="module")
def fitted() -> GDM:
    rng = np.random.default_rng(0)
    y = [list("abc") * 6, list("cba") * 5]
    centroids = rng.normal(size=(3, 4))
    codes = [["abc".index(c) for c in labels] for labels in y]
    X = [centroids[c] @ rng.normal(size=(4, 30)) for c in codes]
    X = [x + 0.3 * rng.normal(size=x.shape) for x in X]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PaperGDM(n_components=4, energy=0.7).fit(X, y)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def draw(figure):
    """Render without the warnings that a missing glyph would raise."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(io.BytesIO(), format="svg")


@pytest.mark.parametrize("n", [0, 1, 8, 10, 11, 40])
def test_palette_gives_distinct_colours(n):
    assert len(set(palette(n))) == n


def test_sequences_show_each_sample_in_the_colour_of_its_label():
    ax = plot_sequences([["a", "b", None], ["b"]])
    image = ax.images[0].get_array()
    blue, orange = palette(2)
    assert [to_hex(c) for c in image[0]] == [blue, orange, UNLABELLED]
    assert to_hex(image[1, 0]) == orange
    assert_allclose(image[1, 1:], 0, atol=0)  # after the last sample: nothing
    names = [t.get_text() for t in ax.get_yticklabels()]
    assert names == ["subject 0", "subject 1"]
    legend = [t.get_text() for t in ax.get_legend().get_texts()]
    assert legend == ["a", "b", "unlabelled"]


def test_sequences_take_ids_labels_and_runs_from_a_study():
    subject = Subject("s1", np.zeros((4, 2)), labels=list("abab"), runs=[1, 1, 2, 2])
    ax = plot_sequences(Study([subject]))
    assert [t.get_text() for t in ax.get_yticklabels()] == ["s1"]
    borders = [s for c in ax.collections for s in c.get_segments() if s[0][0] == 2]
    assert len(borders) == 1


def test_accuracy_bars_are_means_and_dots_are_folds():
    results = [
        FakeResult(np.array([0.5, 0.7])),
        FakeResult(np.array([0.2, 0.4]), method="NoAlignment"),
        FakeResult(np.array([0.6]), protocol="held-out"),
    ]
    ax = plot_accuracy(results)
    assert_allclose([p.get_width() for p in ax.patches], [0.6, 0.3, 0.6], rtol=1e-12)
    drawn = [c for c in ax.collections if not hasattr(c, "get_segments")]
    dots = [c.get_offsets()[:, 0] for c in drawn]
    assert_allclose(np.concatenate(dots), [0.5, 0.7, 0.2, 0.4, 0.6], rtol=1e-12)
    lines = [s[0, 0] for c in ax.collections for s in _segments(c)]
    assert_allclose(lines, 0.25, rtol=1e-12)
    ticks = [t.get_text() for t in ax.get_yticklabels()]
    assert ticks == ["GDM, joint", "without alignment, joint", "GDM, held-out"]


def test_accuracy_of_a_mapping_is_named_by_it():
    ax = plot_accuracy({"mine": FakeResult(np.array([1.0]), protocol="")})
    assert [t.get_text() for t in ax.get_yticklabels()] == ["mine"]


def test_results_with_other_chance_levels_get_a_line_each():
    results = [FakeResult(np.array([0.5]), chance=c) for c in (0.25, 0.5)]
    ax = plot_accuracy(results)
    lines = [s[0, 0] for c in ax.collections for s in _segments(c)]
    assert_allclose(lines, [0.25, 0.5], rtol=1e-12)


def _segments(collection):
    return collection.get_segments() if hasattr(collection, "get_segments") else []


def test_confusion_shows_shares_of_rows():
    result = FakeResult(np.array([0.8]), confusion=np.array([[3, 1], [0, 0]]))
    ax = plot_confusion(result)
    image = ax.images[0].get_array()
    assert_allclose(image, [[0.75, 0.25], [0, 0]], rtol=1e-12)
    assert [t.get_text() for t in ax.texts] == ["75", "25"]


def test_shared_space_draws_every_sample_once():
    rng = np.random.default_rng(1)
    shared = [rng.normal(size=(n, 3)) for n in (5, 4)]
    labels = [["a", "b", None, "a", "b"], list("abab")]
    ax = plot_shared_space(shared, labels, components=(2, 0))
    drawn = np.concatenate([c.get_offsets() for c in ax.collections])
    expected = np.concatenate(shared)[:, [2, 0]]
    order = np.lexsort(drawn.T), np.lexsort(expected.T)
    assert_allclose(drawn[order[0]], expected[order[1]], rtol=1e-12)
    assert len(ax.collections) == 3


def test_names_from_data_are_drawn_as_they_are():
    result = FakeResult(np.array([0.5]), method="$x^2", categories=AWKWARD)
    result.confusion = np.eye(4)
    figures = [
        plot_sequences([AWKWARD]),
        plot_confusion(result),
        plot_accuracy(result),
        plot_shared_space([np.eye(4)], [AWKWARD]),
    ]
    for ax in figures:
        draw(ax.figure)
    legend = figures[0].get_legend().get_texts()
    assert {t.get_text().strip() for t in legend} == set(AWKWARD)


def test_figures_do_not_follow_or_change_the_users_style():
    import matplotlib as mpl

    with mpl.rc_context({"lines.linewidth": 9.0, "text.color": "red"}):
        ax = plot_sequences([["a", "b"]])
        assert mpl.rcParams["lines.linewidth"] == 9.0
    assert ax.get_legend().get_texts()[0].get_color() != "red"


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: plot_sequences([]), InputError, "no subjects given"),
        (lambda: plot_accuracy([]), InputError, "no results given"),
        (lambda: plot_accuracy([3]), InputError, "has no scores"),
        (lambda: plot_accuracy(FakeResult([])), InputError, "'GDM' has no scores"),
        (
            lambda: plot_shared_space([np.eye(2)], [["a"]]),
            InputError,
            "one label per sample",
        ),
        (
            lambda: plot_shared_space([np.eye(2)], [["a", "b"]], components=(0, 2)),
            IndexError,
            "out of bounds",
        ),
    ],
)
def test_wrong_input_is_named(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_clean_text_leaves_what_xml_can_hold():
    assert clean_text("a\x00\ud800\n\u2028b") == "a    b"


def draw_brain(space, **options):
    image = space.to_image(np.arange(1.0, space.n_voxels + 1))
    return plot_brain(image, space, **options)


def _volume_space(affine):
    import nibabel as nib

    return VolumeSpace(nib.Nifti1Image(np.ones((4, 5, 4), np.uint8), affine))


def test_volumes_within_the_template_are_drawn_as_glass_brains():
    near, far = np.diag([9.0, 9, 9, 1]), np.diag([90.0, 90, 90, 1])
    images = [_volume_space(a).to_image(np.ones(80)) for a in (near, far)]
    images.append(_volume_space(near).to_image(np.zeros(80)))  # nothing to be inside
    assert [fits_glass_brain(i) for i in images] == [True, False, False]


@pytest.mark.parametrize("size", [9.0, 90.0])
def test_feature_maps_are_drawn_from_volumes(size):
    space = _volume_space(np.diag([size, size, size, 1]))
    figure = draw_brain(space, title="feature 1")
    assert len(figure.axes) >= 3  # three views


def test_feature_maps_on_another_surface_name_the_way_out():
    space = SurfaceSpace({"CortexLeft": 12})
    with pytest.raises(
        InputError, match=r"12} vertices: no mesh of that size.*surface viewer"
    ):
        draw_brain(space)


def test_feature_maps_are_drawn_on_fsaverage5():
    space = SurfaceSpace({"CortexLeft": 10242})
    figure = draw_brain(space)
    assert figure.axes


def test_both_hemispheres_are_drawn_under_one_title():
    space = SurfaceSpace({"CortexLeft": 10242, "CortexRight": 10242})
    figure = draw_brain(space, title="feature 1", colorbar=False)
    assert len(figure.axes) == 4  # from outside and inside
    assert figure.get_suptitle() == "feature 1"


@pytest.mark.parametrize(
    ("n", "numbers", "turn"), [(3, True, 45), (13, False, 45), (31, False, None)]
)
def test_large_confusions_lose_numbers_then_names(n, numbers, turn):
    names = [f"category {i}" for i in range(n)]
    result = FakeResult(np.array([0.5]), categories=names, confusion=np.eye(n))
    ax = plot_confusion(result)
    assert bool(ax.texts) == numbers
    labels = [t for t in ax.get_xticklabels() if t.get_text().startswith("category")]
    assert len(labels) == (0 if turn is None else n)
    assert {t.get_rotation() for t in labels} == ({turn} - {None})


def test_too_many_names_leave_no_room_for_a_legend(fitted):
    labels = [[f"c{i}" for i in range(25)]]
    ax = plot_sequences(labels)
    assert ax.get_legend() is None
    ax = plot_shared_space([np.zeros((25, 2))], labels)
    assert ax.get_legend() is None
    with pytest.raises(InputError, match="one label per sample"):
        plot_shared_space([np.zeros((25, 2))] * 2, labels)


def test_figures_are_those_of_pyplot_or_go_where_they_are_told(fitted):
    ax = plot_sequences([["a", "b"]])
    assert ax.figure.number in plt.get_fignums()  # which notebooks show
    _, (left, right) = plt.subplots(1, 2)
    assert plot_sequences([["a", "b"]], axes=left) is left
    assert plot_accuracy(FakeResult(np.array([0.5])), axes=right) is right
    assert len(plt.get_fignums()) == 2


def test_a_comparison_is_drawn_as_its_results_are(rng):
    X = [rng.normal(size=(40, 8)) for _ in range(3)]
    found = compare_methods(X, {"one": PaperGDM(2, graph="time")}, window=3)
    assert [scored.name for scored in list_results(found)] == list(found.results)
