"""Stories of users who were misled, or left with nothing; none may happen again.

Each test is one way to publish something false, or to fail on an ordinary study, told
as the user met it. The modules' own tests look closer.
"""

import numpy as np
import pytest

# -- the solver ------------------------------------------------------------------------


# -- labels, subjects and their order --------------------------------------------------


# -- voxels and files in memory --------------------------------------------------------


def _three_subjects(n_voxels=120, n_samples=40):
    rng = np.random.default_rng(0)
    y = [np.arange(n_samples) % 4] * 3
    means = rng.standard_normal((4, 6))
    X = [
        means[y[0]] @ rng.standard_normal((6, n_voxels))
        + rng.standard_normal((n_samples, n_voxels))
        for _ in range(3)
    ]
    return X, y


def test_a_map_that_i_cleaned_in_memory_is_aligned_as_i_cleaned_it(tmp_path):
    from brainweave import GDM

    X, y = _three_subjects()
    maps = []
    for i, x in enumerate(X):
        np.save(tmp_path / f"{i}.npy", x)
        maps.append(np.load(tmp_path / f"{i}.npy", mmap_mode="c"))
        maps[-1] -= np.outer(np.sin(np.arange(40)), maps[-1][1])  # take out a confound
    expected = GDM(3).fit([np.array(m) for m in maps], y)
    np.testing.assert_array_equal(
        GDM(3).fit(maps, y).eigenvalues_, expected.eigenvalues_
    )


def test_a_file_that_is_replaced_while_i_work_does_not_slip_in(tmp_path):
    from brainweave import GDM

    X, y = _three_subjects()
    for i, x in enumerate(X):
        np.save(tmp_path / f"{i}.npy", x)
    maps = [np.load(tmp_path / f"{i}.npy", mmap_mode="r") for i in range(3)]
    for i, x in enumerate(X):  # another job writes its own version
        np.save(tmp_path / "new.npy", x[::-1])
        (tmp_path / "new.npy").replace(tmp_path / f"{i}.npy")
    found = GDM(3).fit(maps, y).eigenvalues_
    np.testing.assert_array_equal(found, GDM(3).fit(X, y).eigenvalues_)


def test_swapping_two_rows_after_the_fit_does_not_bend_the_weights():
    from brainweave import GDM
    from brainweave.exceptions import InputError

    X, y = _three_subjects()
    for first in range(1, 40):  # whichever rows
        gdm = GDM(3).fit(X, y)
        X[1][[0, first]] = X[1][[first, 0]]
        with pytest.raises(InputError, match=r"X\[1\] was changed in place"):
            _ = gdm.maps_[1].weights


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 1e25), ("float64", 1e200)])
def test_a_large_unit_does_not_make_my_voxels_constant(dtype, unit):
    from brainweave import GDM

    X, y = _three_subjects()
    scaled = [(x * unit).astype(dtype) for x in X]
    gdm = GDM(3).fit(scaled, y)
    assert all(basis.constant_voxels.size == 0 for basis in gdm.bases_)
    expected = GDM(3).fit(X, y).eigenvalues_
    np.testing.assert_allclose(gdm.eigenvalues_, expected, rtol=1e-4)
    assert np.isfinite(gdm.transform(scaled)[0]).all()


def test_a_large_hp_does_not_leave_one_dimension_in_silence():
    from brainweave import GDM

    X, y = _three_subjects()
    gdm = GDM(3, kernel="quadratic", kernel_params={"hp": 1e18}).fit(X, y)
    linear = GDM(3).fit(X, y)  # which the kernel tends to
    assert [b.n_kept for b in gdm.bases_] == [b.n_kept for b in linear.bases_]


def test_a_small_hp_that_makes_every_sample_unlike_is_refused():
    from brainweave import GDM
    from brainweave.exceptions import InputError

    X, y = _three_subjects()
    with pytest.raises(InputError, match=r"X\[0\].* no two samples alike"):
        GDM(3, kernel="gaussian", kernel_params={"hp": 1e-3}).fit(X, y)


def test_a_mask_that_is_mostly_empty_is_told():
    from brainweave import GDM
    from brainweave.exceptions import SkippedWarning

    X, y = _three_subjects()
    X[2][:, 10:] = 0
    with pytest.warns(SkippedWarning, match=r"X\[2\]: 110 of its 120 voxels"):
        GDM(3).fit(X, y)


def test_pieces_of_the_brain_can_be_scored():
    from brainweave import DetSRM, Parcelwise, Study, Subject
    from brainweave import between_subject_classification as score

    X, y = _three_subjects()
    study = Study(Subject(f"s{i}", x, labels=y[0]) for i, x in enumerate(X))
    aligner = Parcelwise(DetSRM(3, random_state=0), 1 + np.arange(120) % 2)
    for protocol in ("joint", "held-out"):
        assert score(aligner, study, protocol=protocol).mean > 0.6


def test_a_saved_model_knows_the_samples_that_made_it(tmp_path):
    from brainweave import GDM, load, save

    X, y = _three_subjects()
    fitted = GDM(3).fit([x[:30] for x in X], [known[:30] for known in y])
    model = load(save(fitted, tmp_path / "model.safetensors"))
    for m, x in zip(model.maps_, X, strict=True):
        assert m.took_part(x).tolist() == [True] * 30 + [False] * 10


# -- evaluations and their store -------------------------------------------------------


# -- components and the report ---------------------------------------------------------


# -- the command line and the BIDS App -------------------------------------------------


# -- files from elsewhere --------------------------------------------------------------
