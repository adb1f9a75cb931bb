"""Checks of what users pass in: the limits, and each message to the letter."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from brainweave._core import validation as check
from brainweave._core.exceptions import InputError


def refused(message, error=InputError):
    return pytest.raises(error, match=f"^{re.escape(message)}$")


def parameter_of(error):
    return error.value.parameter


@pytest.mark.parametrize(
    ("maximum", "wanted"), [(5, "between 2 and 5"), (np.inf, ">= 2")]
)
def test_integers_within_limits(maximum, wanted):
    def ask(value):
        return check.check_int("n", value, minimum=2, maximum=maximum, owner="SRM")

    for value in (2, 3, 5, np.int64(4)):
        assert ask(value) == value
        assert type(ask(value)) is int
    for value in [1, -3] + [6] * (maximum == 5):
        with refused(f"n of SRM must be {wanted}, got {value}.") as error:
            ask(value)
        assert parameter_of(error) == "n"
    for value in (True, 2.0, "2", None, np.array([2, 3])):
        with refused(
            f"n of SRM must be an integer {wanted}, got {value!r}.", TypeError
        ):
            ask(value)


def test_numbers_of_jobs():
    assert check.check_n_jobs(None) is None
    for value in (1, -1, 3, np.int32(2)):
        assert check.check_n_jobs(value) == value
        assert type(check.check_n_jobs(value)) is int
    for value in (0, True, False, 1.0, "1"):
        with refused(
            f"n_jobs must be an integer other than 0, or None; got {value!r}."
        ) as error:
            check.check_n_jobs(value)
        assert parameter_of(error) == "n_jobs"


@pytest.mark.parametrize(
    ("interval", "inside", "outside", "wanted"),
    [
        ("(0, 1]", [1, 0.5, 1e-9], [0, -0.1, 1.1], "in (0, 1]"),
        ("[0, 1)", [0, 0.5], [1, -0.1, 1.5], "in [0, 1)"),
        ("[0, 1]", [0, 1], [-1e-9, 1 + 1e-9], "in [0, 1]"),
        ("(2, 3)", [2.5], [2, 3], "in (2, 3)"),
        ("[0, inf)", [0, 1e9], [-1, np.inf], ">= 0"),
        ("(0.5, inf)", [0.6], [0.5, 0.4, np.inf], "> 0.5"),
        ("[0, inf]", [0, np.inf], [-1], ">= 0"),
    ],
)
def test_numbers_in_intervals(interval, inside, outside, wanted):
    def ask(value, **hint):
        return check.check_number("rho", value, interval, owner="GDM", **hint)

    for value in inside:
        assert ask(value) == value
        assert type(ask(value)) is float
    for value in [*outside, np.nan]:
        with refused(f"rho of GDM must be {wanted}, got {value}.") as error:
            ask(value)
        assert parameter_of(error) == "rho"
        with refused(f"rho of GDM must be {wanted}, got {value}. So."):
            ask(value, hint="So.")
    for value in (True, "0.5", None):
        message = f"rho of GDM must be a number {wanted}, got {value!r}."
        with refused(message, TypeError):
            ask(value)
        with refused(f"{message} So.", TypeError):
            ask(value, hint="So.")


def test_fractions_are_above_zero_and_at_most_one():
    assert check.check_fraction("energy", np.float32(0.5), owner="GDM") == 0.5
    assert check.check_fraction("energy", 1, owner="GDM") == 1
    told = "82 % is written 0.82; 1 keeps everything."
    with refused(f"energy of GDM must be in (0, 1], got 82. {told}"):
        check.check_fraction("energy", 82, owner="GDM")
    with refused(f"energy of GDM must be in (0, 1], got 0. {told} So."):
        check.check_fraction("energy", 0, owner="GDM", hint="So.")


def test_options_and_lists_of_them():
    assert check.check_option("how", "b", ("a", "b"), owner="it") == "b"
    for value in ("c", "", None, ["a"]):
        with refused(f"how of it must be one of 'a', 'b'; got {value!r}.") as error:
            check.check_option("how", value, ("a", "b"), owner="it")
        assert parameter_of(error) == "how"
    for value, wanted in (
        ("rest", ["rest"]),
        (3, [3]),
        (("a", 1), ["a", 1]),
        (np.arange(2), [0, 1]),
        (iter("ab"), ["a", "b"]),
        ([], []),
    ):
        assert check.check_list_option("ignore", value, "it") == wanted
    for value in (b"rest", {"a": 1}, 1.5, None):
        got = f"{type(value).__name__} {value!r}"
        with refused(f"ignore of it must be a list, got {got}.", TypeError):
            check.check_list_option("ignore", value, "it")


def test_arrays_of_real_numbers_and_nothing_else():
    for kind in (bool, np.uint8, np.int64, np.float16, np.float64):
        check.check_numbers(np.zeros((2, 2), kind), "X")
    check.check_numbers(np.ma.MaskedArray(np.ones(3), mask=False), "X")
    check.check_numbers([[1, 2]], "X")
    check.check_numbers([], "X")
    sparse = "X is sparse; samples x voxels must be dense. Pass X.toarray()."
    for X in (scipy.sparse.eye_array(2), SimpleNamespace(is_sparse=True)):
        with refused(sparse, TypeError):
            check.check_numbers(X, "X")
    check.check_numbers(SimpleNamespace(is_sparse=False), "X")
    with refused(
        "X is a masked array with 2 masked values. Drop these voxels or samples, or "
        "fill them: X.filled(...)."
    ):
        check.check_numbers(np.ma.MaskedArray(np.ones(3), mask=[1, 0, 1]), "X")
    swapped = " Samples come first, labels second: are X and y swapped?"
    for X, told in (
        (np.array(["a", "bc"]), f"<U2.{swapped}"),
        (["a", "b"], f"text.{swapped}"),
        (("a",), f"text.{swapped}"),
        (np.ones(2, complex), "complex128."),
        (np.array([None]), "object."),
        (np.array(["2020"], "M8[Y]"), "datetime64[Y]."),
        (SimpleNamespace(dtype="torch.complex64"), "torch.complex64."),
    ):
        with refused(f"X must hold real numbers, got {told}", TypeError):
            check.check_numbers(X, "X")


def test_files_images_and_aligners_are_no_samples():
    use = (
        "not samples. Use brainweave.load_nifti({'01': image}, mask=...) for images, "
        "brainweave.Study.open for study folders."
    )
    image = type("Image", (), {"dataobj": None})()
    masker = type("Masker", (), {"inverse_transform": None})()
    aligner = type("GDM", (), {"inverse_transform": None, "fit_new_subject": None})()
    for X, got in (
        ("a.npy", "the path 'a.npy'"),
        (Path("b.nii"), "the path 'b.nii'"),
        (image, "a Image"),
        (masker, "a Masker"),
        (aligner, "the aligner GDM"),
    ):
        with refused(f"X[1] is {got}, {use}", TypeError):
            check.refuse_files(X, "X[1]")
    check.refuse_files(np.ones(2), "X")


def test_shapes_of_samples():
    assert check.check_shape(np.ones((2, 1)), "X") == (2, 1)
    assert check.check_2d(np.ones((0, 4)), "X") == (0, 4)
    for n in (0, 1):
        with refused(f"X has {n} sample(s); at least 2 are needed per subject."):
            check.check_shape(np.ones((n, 3)), "X")
    with refused("X has no voxels (shape (2, 0))."):
        check.check_shape(np.ones((2, 0)), "X")
    with refused("X must be a 2-D array (samples x voxels), got list.", TypeError):
        check.check_2d([[1, 2], [3]], "X")
    for lacking in (
        SimpleNamespace(shape=(2, 2)),
        SimpleNamespace(dtype=np.dtype(int)),
    ):
        with refused(
            "X must be a 2-D array (samples x voxels), got SimpleNamespace.", TypeError
        ):
            check.check_2d(lacking, "X")
    for shape in ((3,), (3, 2, 1)):
        with refused(
            f"X must be 2-D (samples x voxels), got shape {shape}. One voxel is "
            "X.reshape(-1, 1); labels are y, the second argument; images are masked by "
            "load_nifti."
        ):
            check.check_2d(np.ones(shape), "X")
    assert check.ask_if_turned(3, 4, 5) == check.ask_if_turned(4, 3, 4) == ""
    assert check.ask_if_turned(3, 4, 4) == (
        " The array is 3 x 4: is it voxels x samples? Rows are samples here, so pass "
        "its transpose, x.T."
    )


def test_samples_of_a_known_subject_have_its_voxels():
    x = np.arange(6.0).reshape(3, 2)
    assert check.check_samples(x, 2, "X") is x
    assert check.check_samples(SimpleNamespace(data=lambda: x), 2, "X") is x
    for rows in (x.tolist(), pd.DataFrame(x), tuple(map(tuple, x))):
        np.testing.assert_array_equal(check.check_samples(rows, 2, "X"), x)
    assert check.check_samples(np.ones((0, 2)), 2, "X").shape == (0, 2)
    mask = "Use the same mask as for fitting."
    for X, got, remedy in (
        (np.ones((4, 3)), "shape (4, 3)", mask),
        (np.ones(2), "shape (2,)", mask),
        (np.ones((2, 1, 1)), "shape (2, 1, 1)", mask),
        ([[1, 2], [3]], "a list", mask),
        (
            np.ones((2, 5)),
            "shape (2, 5)",
            "Is it voxels x samples? Then pass its transpose, x.T.",
        ),
    ):
        with refused(
            "X must be samples x 2 parts, one array of one subject; "
            f"got {got}. {remedy}"
        ):
            check.check_samples(X, 2, "X", "parts")
    with pytest.raises(InputError, match="samples x 2 voxels, one"):
        check.check_samples(np.ones(2), 2, "X")


def test_lists_of_subjects():
    def listed(X, **more):
        return check.check_list_of_subjects(X, owner="GDM", **more)

    x, y = np.ones((3, 2)), np.zeros((4, 2))
    got = listed((x, y))
    assert type(got) is list
    assert got[0] is x
    assert got[1] is y
    stack = listed(np.stack([x, 2 * x]))
    np.testing.assert_array_equal(stack[1], 2 * x)
    assert len(stack) == 2
    a, b = listed({"a": x, 7: y.tolist()})
    assert (a.id, b.id, b.n_samples, b.n_voxels) == ("a", "7", 4, 2)
    assert a.labels is a.space is None
    np.testing.assert_array_equal(b.data(), y)
    frame, rows = listed([pd.DataFrame(x), x.tolist()])
    assert type(frame) is type(rows) is np.ndarray

    class Indexed:  # iterated by its numbers
        def __getitem__(self, i):
            return [x, y][i]

    assert listed(Indexed())[1] is y
    assert listed([x], minimum=1)[0] is x
    for minimum, X in ((2, [x]), (2, []), (1, []), (3, [x, x])):
        subjects = "subject" if minimum == 1 else "subjects"
        with refused(
            f"GDM needs at least {minimum} {subjects}; got {len(X)}. Pass one array "
            "per subject, [X1, X2, ...]."
        ):
            listed(X, minimum=minimum)
    with pytest.raises(InputError, match="at least 2 subject"):
        listed([x])
    how = (
        "GDM takes a list with one array (samples x voxels) per subject, [X1, X2, ...]"
    )
    for X, told in (
        (x, "one array of shape (3, 2)"),
        (np.ones(3), "one array of shape (3,)"),
        (np.ones((1, 1, 1, 1)), "one array of shape (1, 1, 1, 1)"),
        (pd.DataFrame(x), "one array of shape (3, 2)"),
        (5, "int"),
        (None, "NoneType"),
    ):
        with refused(f"{how}; got {told}.", TypeError):
            listed(X)


def labelled(labels, n=3, **more):
    return SimpleNamespace(labels=labels, n_samples=n, n_voxels=2, **more)


def letters(*words):
    return [list(word) for word in words]


def test_labels_of_every_subject():
    def labels(subjects, y=None, **more):
        return check.labels_per_subject(subjects, y, owner="GDM", **more)

    x = [np.ones((3, 2)), np.ones((2, 2))]
    assert labels(x) is None
    assert labels(x, letters("abc", "de")) == letters("abc", "de")
    own = [labelled(["a", "b", "c"]), labelled(["d"] * 3)]
    assert labels(own) == [["a", "b", "c"], ["d"] * 3]
    assert labels([own[0], labelled(None)]) is None
    assert labels([own[0], x[0]]) is None  # one has none to give
    assert labels(own, [["x"] * 3, ["y"] * 3]) == [["x"] * 3, ["y"] * 3]
    runs = [labelled(None, runs=[i] * 3) for i in range(2)]
    assert labels(runs, labels_of=lambda s: s.runs) == [[0] * 3, [1] * 3]
    some = labels(x, [None, ["d", "e"]])
    assert some[0].tolist() == [None] * 3
    assert some[1] == ["d", "e"]
    same = [np.ones((3, 2))] * 2
    for y in (
        ["a", "b", None],
        [1, 2.5, 3],
        np.array([1, 2, 3]),
        np.array(list("abc")),
    ):
        first, second = labels(same, y)
        assert list(first) == list(second) == list(y)
    named = [labelled(None, id="a"), labelled(None, id="1")]
    assert labels(named, {1: list("xyz"), "a": list("uvw"), "other": []}) == letters(
        "uvw", "xyz"
    )
    for subjects, y, held in (
        (named, {"a": ["x"]}, "y of GDM is a dict of 'a', but X holds 'a', '1'"),
        (x, {"a": ["x"], "b": ["y"]},
         "y of GDM is a dict of 'a', 'b', but X holds arrays, which have no ids"),
    ):  # fmt: skip
        with refused(
            f"{held}. Give X as a dict or a Study, and labels for every subject."
        ):
            labels(subjects, y)
    for y, got in (
        ("abc", "the text 'abc'"),
        (b"abc", "a bytes"),
        (5, "a int"),
        (pd.DataFrame({"a": [1, 2]}), "a DataFrame"),
        (SimpleNamespace(subjects=[]), "a SimpleNamespace"),
    ):
        with refused(f"y of GDM must hold labels, got {got}.", TypeError):
            labels(x, y)
    for n in (0, 1, 3):
        with refused(f"y has {n} entries for 2 subjects."):
            labels(x, [["a"]] * n)
    with refused("y[1] has 3 labels for 2 samples."):
        labels([*x[:1], np.ones((2, 5))], letters("abc", "def"))
    with refused("y[1] has 1 labels for 3 samples."):
        labels(own, letters("abc", "d"))
    turned = (
        " The array is {} x 2: is it voxels x samples? Rows are samples here, so pass "
        "its transpose, x.T."
    )
    with refused("y[0] has 2 labels for 3 samples." + turned.format(3)):
        labels(x, letters("ab", "de"))
    with refused("y[1] has 2 labels for 3 samples." + turned.format(3)):
        labels(own, letters("abc", "de"))
    with refused(
        "y[1] has 3 labels for 2 samples. y is one list for all: pass [y1, y2, ...]."
    ):
        labels(x, ["a", "b", "c"])
    with pytest.raises(InputError, match=r"X\[1\] must be 2-D"):
        labels([x[0], np.ones(2)], letters("abc", "de"))


def test_ids_are_known_of_all_or_of_none():
    def ids(*given):
        return check.ids_of([SimpleNamespace(id=i) for i in given], owner="GDM")

    assert ids("b", "a") == ["b", "a"]
    assert check.ids_of([], owner="GDM") == []
    for lacking in (("a", None), ("a", ""), ("a", 1)):
        assert ids(*lacking) is None
    assert check.ids_of([np.ones(2)], owner="GDM") is None
    with refused(
        "GDM was given subject 'a', 'b' more than once. Give every subject once."
    ):
        ids("b", "a", "c", "a", "b")


def test_lists_in_messages_name_the_first_eight():
    names = [f"s{i}" for i in range(9)]
    assert check.format_list(names[:8]) == "s0, s1, s2, s3, s4, s5, s6, s7"
    assert check.format_list(names) == "s0, s1, s2, s3, s4, s5, s6, s7, and 1 more"
    assert check.format_list(names, 2, "; ") == "s0; s1; and 7 more"
    assert check.format_ids(["a", 1]) == "'a', 1"


def test_a_setting_for_all_or_one_per_subject():
    def spread(value):
        return check.one_per_subject("radius", value, 2, owner="Searchlight")

    assert spread(3) == [3, 3]
    assert spread("ab") == ["ab", "ab"]
    assert spread((1, 2)) == [1, 2]
    assert type(spread((1, 2))) is list
    for n in (1, 3):
        with refused(
            f"radius of Searchlight has {n} entries for 2 subjects. Give one value for "
            "all, or one per subject."
        ):
            spread([1] * n)
