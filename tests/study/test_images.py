"""Images in and out: NIfTI, CIFTI and GIfTI, good ones and broken ones."""

import gzip
import zlib

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nilearn.masking import apply_mask, unmask
from nilearn.signal import clean
from numpy.testing import assert_allclose, assert_array_equal

from brainweave._core.exceptions import InputError, StudyError
from brainweave.study import Study
from brainweave.study.formats.images import (
    epi_mask,
    load_cifti,
    load_gifti,
    load_nifti,
)
from brainweave.study.formats.runs import (
    Cleaning,
    ImageSource,
    Run,
    columns_to_remove,
)
from brainweave.study.provenance import describe_record
from brainweave.study.spaces import RunHeader, VolumeSpace, reading
from brainweave.study.surface import CiftiSpace, SurfaceSpace

AFFINE = np.array([[2.0, 0, 0, -9], [0, 2, 0, -8], [0, 0, 3, -7], [0, 0, 0, 1]])
SHAPE = (5, 6, 4)


def with_confounds(files, confounds):
    pairs = {id: zip(files[id], known, strict=True) for id, known in confounds.items()}
    return {**files, **{id: [Run(*pair) for pair in own] for id, own in pairs.items()}}


def read_run(run, space, cleaning=None):
    run = run if isinstance(run, Run) else Run(run)
    return ImageSource([run], space, cleaning).read()


def make_volume(
    rng, n_volumes=8, shape=SHAPE, affine=AFFINE, t_r=2.0, dtype=np.float32
):
    data = rng.normal(100, 10, size=(*shape, n_volumes)).astype(dtype)
    image = nib.Nifti1Image(data, affine)
    image.header.set_zooms((*image.header.get_zooms()[:3], t_r))
    return image


def make_mask(rng, shape=SHAPE, affine=AFFINE):
    return nib.Nifti1Image((rng.random(shape) > 0.4).astype(np.uint8), affine)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def files(rng, tmp_path):
    """Two subjects, the second with a run less and another mask."""
    paths = {"a": [], "b": []}
    for id, lengths in (("a", (8, 6)), ("b", (7,))):
        for number, length in enumerate(lengths):
            path = tmp_path / f"{id}_{number}.nii.gz"
            nib.save(make_volume(rng, length), path)
            paths[id].append(path)
    masks = {}
    for id in paths:
        masks[id] = tmp_path / f"{id}_mask.nii.gz"
        nib.save(make_mask(rng), masks[id])
    return paths, masks


def test_samples_are_the_masked_volumes_as_nilearn_reads_them(files):
    paths, masks = files
    study = load_nifti(paths, mask=masks, name="toy")
    assert study.name == "toy"
    for id in ("a", "b"):
        expected = np.vstack([apply_mask(str(p), str(masks[id])) for p in paths[id]])
        assert_allclose(study[id].data(), expected, rtol=1e-6)
    assert study["a"].runs.tolist() == [1] * 8 + [2] * 6
    assert study["a"].onsets[:10].tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 0, 2]
    assert study["a"].n_voxels != study["b"].n_voxels


def test_only_headers_are_read_at_first(files, monkeypatch):
    paths, masks = files
    mask_shapes = []
    real = nib.arrayproxy.ArrayProxy._get_unscaled

    def spy(self, slicer):
        mask_shapes.append(self.shape)
        return real(self, slicer)

    monkeypatch.setattr(nib.arrayproxy.ArrayProxy, "_get_unscaled", spy)
    study = load_nifti(paths, mask=masks)
    study.summary()
    study.zscore().split_halves(by="category")
    assert set(mask_shapes) == {SHAPE}  # masks, but no run
    study["b"].data()
    assert (*SHAPE, 7) in mask_shapes


def test_one_mask_for_all(files):
    paths, masks = files
    study = load_nifti(paths, mask=masks["a"])
    assert study["a"].n_voxels == study["b"].n_voxels
    assert study["a"].space == study["b"].space


def test_subjects_can_be_on_different_grids_in_native_space(rng, tmp_path):
    def brain(shape, n_volumes):
        grid = np.indices(shape) - (np.array(shape).reshape(3, 1, 1, 1) - 1) / 2
        inside = (grid**2 / (np.array(shape).reshape(3, 1, 1, 1) / 3) ** 2).sum(0) < 1
        data = 1000.0 * inside[..., None] + rng.normal(size=(*shape, n_volumes))
        return nib.Nifti1Image(data.astype(np.float32), np.diag([3.0, 3, 3, 1])), inside

    (one, inside), (other, _) = brain((20, 22, 18), 6), brain((24, 20, 20), 5)
    study = load_nifti({"a": one, "b": [other]})
    assert study["a"].space.mask.shape == (20, 22, 18)
    assert study["b"].space.mask.shape == (24, 20, 20)
    overlap = (study["a"].space.mask & inside).sum() / inside.sum()
    assert overlap > 0.9


def test_epi_mask_needs_runs_on_one_grid(rng):
    with pytest.raises(StudyError, match="Runs must be on one grid"):
        epi_mask([make_volume(rng), make_volume(rng, shape=(4, 4, 4))])


def test_labels_and_stimuli_are_per_subject_or_for_all(files):
    paths, masks = files
    labels = {"a": ["x"] * 14, "b": list("xyxyxyx")}
    study = load_nifti(paths, mask=masks, labels=labels)
    assert study["b"].labels.tolist() == labels["b"]
    with pytest.raises(InputError, match="no labels for subject 'b'; there is for 'a'"):
        load_nifti(paths, mask=masks, labels={"a": labels["a"]})
    with pytest.raises(InputError, match="'a' has 14 samples, but labels have"):
        load_nifti(paths, mask=masks, labels=["x"] * 7)


def test_cleaning_is_that_of_nilearn_run_by_run(files, rng):

    paths, masks = files
    confounds = {"a": [rng.normal(size=(8, 2)), rng.normal(size=(6, 2))]}
    how = Cleaning(standardize="zscore")
    study = load_nifti(with_confounds(paths, confounds), mask=masks, cleaning=how)
    raw = apply_mask(str(paths["a"][1]), str(masks["a"]))
    expected = clean(
        raw,
        detrend=False,
        standardize="zscore_sample",
        confounds=confounds["a"][1],
        t_r=None,
        filter=False,
    )
    assert_allclose(study["a"].data()[8:], expected, rtol=1e-4, atol=1e-5)
    assert study["b"].data().shape[0] == 7


def test_filters_know_the_repetition_time(rng):
    image = make_volume(rng, 60)
    mask = make_mask(rng)
    study = load_nifti({"a": image}, mask=mask, cleaning=Cleaning(high_pass=0.05))
    values = study["a"].data()
    slow = np.abs(np.fft.rfft(values - values.mean(0), axis=0))[1:4].mean()
    raw = load_nifti({"a": image}, mask=mask, cleaning=Cleaning(high_pass=None))[
        "a"
    ].data()
    assert slow < 0.3 * np.abs(np.fft.rfft(raw - raw.mean(0), axis=0))[1:4].mean()
    with pytest.raises(InputError, match=r"high_pass=0.3 Hz must be below .*0.25 Hz"):
        load_nifti({"a": image}, mask=mask, cleaning=Cleaning(high_pass=0.3))
    unknown = nib.Nifti1Image(np.asarray(image.dataobj), AFFINE)
    unknown.header["pixdim"][4] = 0
    with pytest.raises(InputError, match="which is unknown; give t_r"):
        load_nifti({"a": unknown}, mask=mask, cleaning=Cleaning(high_pass=0.05))[
            "a"
        ].data()


def with_drift(image, size=300.0):
    data = np.asarray(image.dataobj)
    course = size * np.linspace(-1, 1, data.shape[3]) ** 2
    drifting = nib.Nifti1Image((data + course).astype(np.float32), AFFINE)
    drifting.header.set_zooms(image.header.get_zooms())
    drifting.header.set_xyzt_units("mm", "sec")
    return drifting


def drift_left(study):
    values = study["a"].data().astype(float)
    course = np.linspace(-1, 1, len(values)) ** 2
    course -= course.mean()
    return np.abs(course @ values).mean() / (course @ course)


def test_slow_drifts_are_removed_by_default_where_the_repetition_time_is_known(rng):
    image, mask = with_drift(make_volume(rng, 150)), make_mask(rng)
    default = load_nifti({"a": [image, image]}, mask=mask)
    assert drift_left(load_nifti({"a": image}, mask=mask)) < 0.03 * 300
    assert default.record["settings"]["high_pass"] == 1 / 128
    filters = dict(describe_record(default.record))["filters"]
    assert filters == "high-pass 0.0078 Hz (cosines)"
    off = load_nifti({"a": image}, mask=mask, cleaning=Cleaning(high_pass=None))
    assert drift_left(off) > 250
    assert off.record["settings"]["high_pass"] is None
    assert dict(describe_record(off.record))["filters"] == "none"
    unknown = nib.Nifti1Image(np.asarray(image.dataobj), AFFINE)  # 1, of no unit
    study = load_nifti({"a": [unknown, image]}, mask=mask)
    assert_array_equal(study["a"].data()[:150], off["a"].data())
    runs = study.record["runs"]["a"].values()
    assert [run["high_pass"] for run in runs] == [None, 1 / 128]
    told = dict(describe_record(study.record))["filters"]
    assert told.endswith("(cosines) in 1 of 2 runs, whose repetition time is known")
    assert load_nifti({"a": unknown}, mask=mask).record["settings"]["high_pass"] is None


def test_cosines_among_the_confounds_do_no_harm(rng):
    import pandas as pd

    image, mask = with_drift(make_volume(rng, 150)), make_mask(rng)
    n = np.arange(150)[:, None]
    cosines = np.cos(np.pi * np.arange(1, 5) * (n + 0.5) / 150)
    default = load_nifti({"a": image}, mask=mask)["a"].data()
    for table in (cosines, pd.DataFrame(cosines).add_prefix("cosine0")):
        twice = load_nifti({"a": Run(image, table)}, mask=mask)
        assert_allclose(twice["a"].data(), default, rtol=1e-5)


def test_drifts_leave_what_labels_explain(rng):
    levels = np.repeat(rng.normal(size=(12, 1)), 12, axis=0)  # a block of each label
    data = np.broadcast_to(100 + 9 * levels.ravel(), (*SHAPE, 144)).astype(np.float32)
    image = nib.Nifti1Image(data, AFFINE)
    image.header.set_zooms((2, 2, 3, 2.0))
    image.header.set_xyzt_units("mm", "sec")
    labels, mask = np.repeat(list("abcdefghijkl"), 12), make_mask(rng)
    kept = load_nifti({"a": image}, mask=mask, labels=labels)["a"].data()
    assert_allclose(kept, data[0, 0, 0][:, None] + 0 * kept, rtol=1e-5)
    changed = load_nifti({"a": image}, mask=mask)["a"].data()
    assert np.abs(changed - kept).max() > 3
    own = load_nifti({"a": image}, mask=mask, labels=np.arange(144))  # no room
    assert_array_equal(own["a"].data(), changed)


def test_a_different_repetition_time_per_run_gives_its_own_onsets(rng):
    runs = [make_volume(rng, 3, t_r=2.0), make_volume(rng, 3, t_r=0.5)]
    subject = load_nifti({"a": runs}, mask=make_mask(rng))["a"]
    assert subject.onsets.tolist() == [0, 2, 4, 0, 0.5, 1.0]
    runs[1].header.set_xyzt_units("mm", "msec")
    runs[1].header["pixdim"][4] = 1500
    subject = load_nifti({"a": runs}, mask=make_mask(rng))["a"]
    assert subject.onsets.tolist() == [0, 2, 4, 0, 1.5, 3.0]


def test_smoothing_is_that_of_nilearn(rng):
    from nilearn.image import smooth_img

    image, mask = make_volume(rng, 3), make_mask(rng)
    smooth = load_nifti({"a": image}, mask=mask, cleaning=Cleaning(smoothing_fwhm=4.0))[
        "a"
    ].data()
    expected = apply_mask(smooth_img(image, 4.0), mask)
    assert_allclose(smooth, expected, rtol=1e-5)


def test_scaled_integers_are_read_in_single_precision(rng, tmp_path):
    image = make_volume(rng, 4)
    image.set_data_dtype(np.int16)
    nib.save(image, tmp_path / "int.nii")
    mask = make_mask(rng)
    subject = load_nifti({"a": tmp_path / "int.nii"}, mask=mask)["a"]
    assert subject.data().dtype == np.float32
    assert_allclose(subject.data(), apply_mask(image, mask), atol=0.01)


def test_runs_censor_volumes(rng):
    image, mask = make_volume(rng, 10), make_mask(rng)
    whole = read_run(image, VolumeSpace(mask))
    runs = [Run(image, sample_mask=[7, 2]), Run(image, sample_mask=[1, 5])]
    source = ImageSource(runs, VolumeSpace(mask))
    assert source.shape == (4, whole.shape[1])
    assert_array_equal(source.read(), whole[[2, 7, 1, 5]])
    assert source.onsets().tolist() == [4, 14, 2, 10]
    with pytest.raises(InputError, match="sample_mask does not fit: index 10"):
        ImageSource([Run(image, sample_mask=[10])], VolumeSpace(mask))


def test_a_plan_turns_volumes_into_samples(rng):
    class Mean:
        onsets = np.array([4.0])

        def __len__(self):
            return 1

        def apply(self, volumes):
            return volumes[2:5].mean(axis=0, keepdims=True)

    image, space = make_volume(rng, 10), VolumeSpace(make_mask(rng))
    source = ImageSource([Run(image, plan=Mean(), sample_mask=[2, 3, 4, 9])], space)
    assert source.shape[0] == 1
    assert_allclose(source.read()[0], read_run(image, space)[2:5].mean(0), rtol=1e-5)
    assert source.onsets().tolist() == [4.0]


# --- files that do not fit, or are broken ----------------------------------------


def test_a_mask_of_another_shape_is_named_with_both(files, rng):
    paths, _ = files
    with pytest.raises(
        StudyError,
        match=r"'a': '.*a_0.nii.gz' has 5 x 6 x 4 voxels, its mask 5 x 6 x 5",
    ):
        load_nifti(paths, mask=make_mask(rng, shape=(5, 6, 5)))


def test_a_mask_of_another_affine_is_named_with_the_distance(files, rng):
    paths, _ = files
    moved = AFFINE.copy()
    moved[0, 3] += 1.5
    with pytest.raises(StudyError, match=r"other affines: .* up to 1.5 mm apart"):
        load_nifti(paths, mask=make_mask(rng, affine=moved))
    # rounding of the header is no difference
    load_nifti(paths, mask=make_mask(rng, affine=AFFINE + 1e-6))


def test_an_empty_or_four_dimensional_mask_is_refused(files, rng):
    paths, _ = files
    empty = nib.Nifti1Image(np.zeros(SHAPE, np.uint8), AFFINE)
    with pytest.raises(StudyError, match="is empty: no voxel is above zero"):
        load_nifti(paths, mask=empty)
    with pytest.raises(StudyError, match="a mask has three dimensions"):
        load_nifti(paths, mask=make_volume(rng))


def test_nan_in_a_mask_is_outside(rng):
    values = np.ones(SHAPE, np.float32)
    values[0] = np.nan
    assert VolumeSpace(nib.Nifti1Image(values, AFFINE)).n_voxels == 4 * 6 * 4


def test_nan_voxels_are_an_error(rng):
    image, mask = make_volume(rng), make_mask(rng)
    data = np.asarray(image.dataobj).copy()
    where = tuple(np.argwhere(np.asarray(mask.dataobj))[3])
    data[(*where, 5)] = np.nan
    bad = nib.Nifti1Image(data, AFFINE)
    n = int(np.asarray(mask.dataobj).sum())
    with pytest.raises(StudyError, match=rf"1 of {n} voxels in the mask are NaN"):
        load_nifti({"a": bad}, mask=mask)["a"].data()


@pytest.mark.parametrize("compressed", [True, False])
def test_a_file_that_ends_early_is_named(rng, tmp_path, compressed):
    path = tmp_path / ("cut.nii.gz" if compressed else "cut.nii")
    nib.save(make_volume(rng, 50), path)
    path.write_bytes(path.read_bytes()[:-2000])
    study = load_nifti({"a": path}, mask=make_mask(rng))
    with pytest.raises(StudyError, match=r"cut.nii.*[gG]et the file again"):
        study["a"].data()


def test_a_file_cut_in_its_header_is_named(rng, tmp_path):
    path = tmp_path / "cut.nii.gz"
    nib.save(make_volume(rng), path)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(StudyError, match=r"'a': '.*cut.nii.gz'"):
        load_nifti({"a": path}, mask=make_mask(rng))


@pytest.mark.parametrize("ending", [".nii.gz", ".nii.bz2", ".mgz"])
def test_a_compressed_image_with_one_flipped_bit_is_refused(rng, tmp_path, ending):
    kind = {".mgz": nib.MGHImage}.get(ending)
    data = rng.normal(100, 10, (*SHAPE, 12)).astype(np.float32)
    path = tmp_path / f"run{ending}"
    nib.save((kind or nib.Nifti1Image)(data, AFFINE), path)
    mask = nib.Nifti1Image(np.ones(SHAPE, np.uint8), AFFINE)
    whole, content = load_nifti({"a": path}, mask=mask), path.read_bytes()
    assert_array_equal(
        read_run(path, VolumeSpace(mask), Cleaning(high_pass=None)),
        data.reshape(-1, 12).T,
    )

    def refuses(damaged):
        path.write_bytes(damaged)
        for study in (whole, None):  # opened before it was damaged, and after
            with pytest.raises(StudyError, match=rf"run{ending}'"):
                (study or load_nifti({"a": path}, mask=mask))["a"].data()

    for _ in range(40):
        # the first ten bytes of gzip are its own, and hold nothing of the data
        where, flipped = int(rng.integers(10, len(content))), bytearray(content)
        flipped[where] ^= 1 << int(rng.integers(8))
        refuses(flipped)
    for n_cut in (1, 4, 8):
        refuses(content[:-n_cut])


def test_a_damaged_mask_is_refused(rng, tmp_path):
    path = tmp_path / "mask.nii.gz"
    nib.save(make_mask(rng), path)
    path.write_bytes(path.read_bytes()[:-8] + b"\1" * 8)
    with pytest.raises(StudyError, match=r"mask.nii.gz' is not readable"):
        load_nifti({"a": make_volume(rng)}, mask=path)


def test_a_mask_is_not_computed_from_a_damaged_image(rng, tmp_path):
    path = tmp_path / "run.nii.gz"
    nib.save(make_volume(rng), path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(StudyError, match=r"run.nii.gz' ends early"):
        load_nifti({"a": path})
    with pytest.raises(StudyError, match=r"run.nii.gz' ends early"):
        load_nifti(
            {"a": path}, mask=make_mask(rng), cleaning=Cleaning(smoothing_fwhm=3)
        )["a"].data()


def test_a_compressed_image_is_decompressed_once(rng, tmp_path, monkeypatch):
    path = tmp_path / "run.nii.gz"
    nib.save(make_volume(rng, 200), path)
    study, n_bytes, plain = load_nifti({"a": path}, mask=make_mask(rng)), 0, zlib.crc32

    def counted(data, *start):  # gzip sums up all that it decompresses
        nonlocal n_bytes
        n_bytes += len(data)
        return plain(data, *start)

    whole = len(gzip.decompress(path.read_bytes()))
    monkeypatch.setattr("zlib.crc32", counted)
    study["a"].data()
    assert whole <= n_bytes < 1.5 * whole  # and a bit, to know the kind of image


@pytest.mark.parametrize("value", [1.6e37, -3e12])
def test_magnitudes_that_no_image_has_are_refused_by_name(rng, tmp_path, value):
    image, mask = make_volume(rng), make_mask(rng)
    data = np.array(image.dataobj)
    data[tuple(np.argwhere(np.asarray(mask.dataobj) > 0)[2])][1] = value
    nib.save(nib.Nifti1Image(data, AFFINE), tmp_path / "run.nii")
    study = load_nifti({"a": tmp_path / "run.nii"}, mask=mask)
    with pytest.raises(StudyError, match=r"run.nii' has a value .* in voxel 2;"):
        study["a"].data()


def test_missing_and_foreign_files_are_named(rng, tmp_path):
    mask = make_mask(rng)
    with pytest.raises(StudyError, match=r"no file '.*gone.nii.gz'"):
        load_nifti({"a": tmp_path / "gone.nii.gz"}, mask=mask)
    (tmp_path / "notes.nii.gz").write_bytes(gzip.compress(b"not an image" * 99))
    with pytest.raises(StudyError, match=r"notes.nii.gz' is not readable"):
        load_nifti({"a": tmp_path / "notes.nii.gz"}, mask=mask)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"files": []}, TypeError, "must map subject ids to files"),
        ({"files": {}}, TypeError, "files must map subject ids"),
        ({"files": {"a": []}}, StudyError, "'a' has no files"),
    ],
)
def test_wrong_arguments_are_explained(rng, call, error, message):
    with pytest.raises(error, match=message):
        load_nifti(**call, mask=make_mask(rng))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"standardize": True}, "standardize of .*'psc'"),
        ({"high_pass": -1}, "high_pass must be above"),
    ],
)
def test_wrong_settings_are_explained(setting, message):
    with pytest.raises(InputError, match=message):
        Cleaning(**setting)


@pytest.mark.parametrize(
    ("confounds", "message"),
    [
        (
            np.zeros((7, 1)),
            r"its confounds have shape \(7, 1\).* its 8 volumes",
        ),
        (np.full((8, 1), np.nan), "0 is nan in row 2"),
    ],
)
def test_confounds_that_do_not_fit_are_explained(rng, confounds, message):
    with pytest.raises((StudyError, InputError), match=message):
        load_nifti({"a": Run(make_volume(rng), confounds)}, mask=make_mask(rng))[
            "a"
        ].data()


def test_the_first_value_of_a_derivative_is_zero():
    gap = np.array([[np.nan, 1.0], [2.0, 3.0]])
    run = Run("run.nii", gap, header=RunHeader(2))
    assert columns_to_remove(run, None).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    empty = Run("run.nii", np.empty((0, 2)), header=RunHeader(0))
    assert columns_to_remove(empty, None).shape == (0, 2)


def test_confounds_come_from_tables(rng):
    values = rng.normal(size=(8, 2))
    image, mask = make_volume(rng), make_mask(rng)
    cleaned = [
        load_nifti({"a": Run(image, c)}, mask=mask)["a"].data()
        for c in (values, pd.DataFrame(values, columns=["fd", "x"]))
    ]
    assert_array_equal(*cleaned)
    bad = pd.DataFrame({"a": ["x"] * 8})
    with pytest.raises(StudyError, match="are not all numbers"):
        load_nifti({"a": Run(image, bad)}, mask=mask)["a"].data()


# --- back to the brain -------------------------------------------------------------


def test_values_go_back_into_the_volume(rng, tmp_path):
    mask = make_mask(rng)
    space = VolumeSpace(mask)
    maps = rng.normal(size=(3, space.n_voxels)).astype(np.float32)
    image = space.to_image(maps)
    assert_array_equal(image.get_fdata(), unmask(maps, mask).get_fdata())
    nib.save(image, tmp_path / "maps.nii.gz")
    assert_array_equal(space.read(tmp_path / "maps.nii.gz"), maps)
    one = space.to_image(maps[0])
    assert one.shape == SHAPE
    assert_allclose(one.affine, AFFINE, atol=0)


def test_values_that_do_not_fit_are_explained(rng):
    space = VolumeSpace(make_mask(rng))
    n = space.n_voxels
    with pytest.raises(InputError, match=rf"has {n} voxels, .*shape \(3,\)"):
        space.to_image(np.zeros(3))
    with pytest.raises(InputError, match=r"Give \(n_voxels,\) or \(n_maps, n_voxels\)"):
        space.to_image(np.zeros((n, 2)))
    with pytest.raises(TypeError, match="real numbers"):
        space.to_image(np.zeros(n, complex))


# --- CIFTI ------------------------------------------------------------------------


def make_cifti(rng, n_samples=6, kind="dtseries", n_left=10):
    left = nib.cifti2.BrainModelAxis.from_surface(
        np.arange(n_left), 12, name="CIFTI_STRUCTURE_CORTEX_LEFT"
    )
    volume = np.zeros((3, 3, 3), bool)
    volume[1, 1:] = True
    sub = nib.cifti2.BrainModelAxis.from_mask(
        volume, affine=np.eye(4), name="CIFTI_STRUCTURE_THALAMUS_LEFT"
    )
    if kind == "dtseries":
        first = nib.cifti2.SeriesAxis(0, 0.8, n_samples)
    else:
        first = nib.cifti2.ScalarAxis([f"beta {i}" for i in range(n_samples)])
    values = rng.normal(size=(n_samples, n_left + 6)).astype(np.float32)
    return nib.Cifti2Image(values, header=(first, left + sub))


@pytest.mark.parametrize("kind", ["dtseries", "dscalar"])
def test_cifti_in_and_out(rng, tmp_path, kind):
    path = tmp_path / f"x.{kind}.nii"
    image = make_cifti(rng, kind=kind)
    nib.save(image, path)
    subject = load_cifti({"a": [path, path]})["a"]
    assert subject.samples.shape == (12, 16)
    assert_array_equal(subject.data()[:6], np.asarray(image.dataobj))
    if kind == "dtseries":
        assert_allclose(subject.onsets[:3], [0, 0.8, 1.6], rtol=1e-6)
    else:
        assert subject.onsets is None
    maps = rng.normal(size=(2, 16)).astype(np.float32)
    nib.save(subject.space.to_image(maps), tmp_path / "maps.dscalar.nii")
    back = nib.load(tmp_path / "maps.dscalar.nii")
    assert_array_equal(np.asarray(back.dataobj), maps)
    assert back.header.get_axis(1) == subject.space.axis


def test_cifti_with_other_brain_models_is_refused(rng, tmp_path):
    nib.save(make_cifti(rng), tmp_path / "x.dtseries.nii")
    nib.save(make_cifti(rng, n_left=9), tmp_path / "y.dtseries.nii")
    with pytest.raises(
        StudyError, match=r"y.dtseries.nii' has other brain models \(15"
    ):
        load_cifti({"a": [tmp_path / "x.dtseries.nii", tmp_path / "y.dtseries.nii"]})
    with pytest.raises(StudyError, match="is a Nifti1Image, not a Cifti2Image"):
        load_cifti({"a": make_volume(rng)})
    smooth = Cleaning(smoothing_fwhm=2)
    with pytest.raises(InputError, match="works on volumes only"):
        load_cifti({"a": tmp_path / "x.dtseries.nii"}, cleaning=smooth)["a"].data()


# --- GIfTI ------------------------------------------------------------------------


def save_gifti(path, values, structure):
    arrays = [nib.gifti.GiftiDataArray(row.astype(np.float32)) for row in values]
    meta = nib.gifti.GiftiMetaData({"AnatomicalStructurePrimary": structure})
    nib.save(nib.gifti.GiftiImage(darrays=arrays, meta=meta), path)


def test_gifti_of_one_hemisphere_in_and_out(rng, tmp_path):
    values = rng.normal(size=(5, 9)).astype(np.float32)
    save_gifti(tmp_path / "l.func.gii", values, "CortexLeft")
    subject = load_gifti({"a": tmp_path / "l.func.gii"}, t_r=1.5)["a"]
    assert_array_equal(subject.data(), values)
    assert subject.onsets.tolist() == [0, 1.5, 3, 4.5, 6]
    image = subject.space.to_image(values[:2])
    nib.save(image, tmp_path / "out.func.gii")
    back = nib.load(tmp_path / "out.func.gii")
    assert_array_equal(np.vstack(back.agg_data()), values[:2])
    assert back.meta["AnatomicalStructurePrimary"] == "CortexLeft"


def test_gifti_of_two_hemispheres_with_a_medial_wall(rng, tmp_path):
    left, right = rng.normal(size=(5, 9)), rng.normal(size=(5, 8))
    save_gifti(tmp_path / "l.func.gii", left, "CortexLeft")
    save_gifti(tmp_path / "r.func.gii", right, "CortexRight")
    wall = np.ones(9)
    wall[[0, 4]] = 0
    save_gifti(tmp_path / "l.shape.gii", wall[None], "CortexLeft")
    save_gifti(tmp_path / "r.shape.gii", np.ones((1, 8)), "CortexRight")
    run = {
        "CortexLeft": tmp_path / "l.func.gii",
        "CortexRight": tmp_path / "r.func.gii",
    }
    mask = {
        "CortexLeft": tmp_path / "l.shape.gii",
        "CortexRight": tmp_path / "r.shape.gii",
    }
    subject = load_gifti({"a": [run, run]}, mask=mask)["a"]
    assert subject.samples.shape == (10, 15)
    assert_allclose(subject.data()[5:, :7], left[:, wall > 0], rtol=1e-6)
    images = subject.space.to_image(np.arange(15.0))
    assert images["CortexLeft"].agg_data()[[0, 4]].tolist() == [0, 0]
    assert images["CortexRight"].agg_data().tolist() == list(range(7, 15))


@pytest.mark.parametrize("inside", [True, False])
def test_gifti_files_of_both_hemispheres_are_paired_into_runs(rng, tmp_path, inside):
    values, files = {}, []
    for run, side in ((1, "R"), (2, "L"), (1, "L"), (2, "R")):
        values[run, side] = rng.normal(size=(5, 9)).astype(np.float32)
        files.append(tmp_path / f"sub-a_run-{run}_hemi-{side}_bold.func.gii")
        name = {"L": "CortexLeft", "R": "CortexRight"}[side] if inside else ""
        save_gifti(files[-1], values[run, side], name)
    expected = [np.hstack([values[run, side] for side in "LR"]) for run in (1, 2)]
    wall = np.ones((1, 9))
    wall[0, 3] = 0
    masks = [tmp_path / f"hemi-{side}.shape.gii" for side in "RL"]
    for path in masks:
        save_gifti(path, wall, "")
    subject = load_gifti({"a": files}, t_r=2.0)["a"]
    assert subject.runs.tolist() == [1] * 5 + [2] * 5
    assert list(subject.space.masks) == ["CortexLeft", "CortexRight"]
    assert_array_equal(subject.data(), np.vstack(expected))
    masked = load_gifti({"a": files}, mask=masks)["a"]
    keep = np.tile(wall[0] > 0, 2)
    assert_array_equal(masked.data(), np.vstack(expected)[:, keep])
    if inside:
        with pytest.raises(StudyError, match=r"the structures \['CortexLeft'\]"):
            load_gifti({"a": [Run(files[0], confounds=np.ones((5, 1))), files[2]]})


def test_gifti_files_that_could_be_hemispheres_or_runs_are_refused(rng, tmp_path):
    def surface(name, structure=""):
        save_gifti(tmp_path / name, rng.normal(size=(5, 9)), structure)
        return tmp_path / name

    for names in (
        ("one.func.gii", "two.func.gii"),
        ("hemi-L_run-1.func.gii", "two.func.gii"),
        ("hemi-L_run-1.func.gii", "hemi-R_run-1.func.gii", "hemi-L_run-2.func.gii"),
        ("hemi-L_a.func.gii", "hemi-R_b.func.gii", "hemi-L_c.func.gii", "rh.x.gii"),
    ):
        with pytest.raises(StudyError, match=r"'a': Which of these .* is not clear"):
            load_gifti({"a": [surface(name) for name in names]})
    images = [nib.load(surface("x.gii", "CortexLeft")) for _ in range(2)]
    assert load_gifti({"a": images})["a"].runs.tolist() == [1] * 5 + [2] * 5


def test_gifti_as_one_matrix_is_read_too(rng, tmp_path):
    values = rng.normal(size=(9, 5)).astype(np.float32)
    nib.save(
        nib.gifti.GiftiImage(darrays=[nib.gifti.GiftiDataArray(values)]),
        tmp_path / "m.func.gii",
    )
    assert_array_equal(load_gifti({"a": tmp_path / "m.func.gii"})["a"].data(), values.T)


def test_gifti_that_does_not_fit_is_explained(rng, tmp_path):
    left, right = tmp_path / "l.func.gii", tmp_path / "r.func.gii"
    save_gifti(left, rng.normal(size=(5, 9)), "CortexLeft")
    save_gifti(right, rng.normal(size=(4, 8)), "CortexRight")
    with pytest.raises(StudyError, match=r"l.func.gii' differ in samples: \[5, 4\]"):
        load_gifti({"a": {"CortexLeft": left, "CortexRight": right}})
    wrong = [tmp_path / f"hemi-{side}.func.gii" for side in "LR"]
    for path in wrong:
        save_gifti(path, rng.normal(size=(4, 8)), "CortexLeft")
    with pytest.raises(StudyError, match=r"hemi-R.func.gii' is CortexLeft inside"):
        load_gifti({"a": wrong})
    other = tmp_path / "other.func.gii"
    save_gifti(other, rng.normal(size=(4, 8)), "CortexLeft")
    with pytest.raises(StudyError, match=r"other.func.gii' has 8 vertices where 9"):
        load_gifti({"a": [left, other]})
    mesh = nib.gifti.GiftiImage(
        darrays=[
            nib.gifti.GiftiDataArray(np.zeros((9, 3), np.float32)),
            nib.gifti.GiftiDataArray(np.zeros((4, 3), np.int32)),
        ]
    )
    nib.save(mesh, tmp_path / "mesh.surf.gii")
    with pytest.raises(StudyError, match=r"Is it a mesh"):
        load_gifti({"a": tmp_path / "mesh.surf.gii"})
    left.write_bytes(left.read_bytes()[:-200])
    with pytest.raises(StudyError, match=r"l.func.gii' is not readable"):
        load_gifti({"a": left})
    with pytest.raises(StudyError, match=r"no file '.*gone.gii'"):
        load_gifti({"a": tmp_path / "gone.gii"})


# --- spaces in the plain folder, and memory ------------------------------------------


def test_every_kind_of_space_survives_the_plain_folder(rng, tmp_path):
    nib.save(make_cifti(rng), tmp_path / "x.dtseries.nii")
    save_gifti(tmp_path / "l.func.gii", rng.normal(size=(5, 9)), "CortexLeft")
    subjects = [
        load_nifti({"volume": make_volume(rng)}, mask=make_mask(rng))[0],
        load_cifti({"cifti": tmp_path / "x.dtseries.nii"})[0],
        load_gifti({"surface": tmp_path / "l.func.gii"})[0],
    ]
    study = Study(subjects)
    opened = study.save(tmp_path / "out")
    for before, after in zip(study, opened, strict=True):
        assert after.space.kind == before.id
        assert after.space == before.space
        assert_array_equal(after.data(), before.data())
    assert isinstance(opened["cifti"].space, CiftiSpace)
    assert isinstance(opened["surface"].space, SurfaceSpace)


def test_conversion_needs_memory_for_one_subject_at_a_time(rng, tmp_path):
    import tracemalloc

    mask = nib.Nifti1Image(np.ones((20, 20, 20), np.uint8), np.eye(4))
    one = 40 * 8000 * 4  # bytes of one subject
    paths = {}
    for number in range(6):
        paths[f"s{number}"] = tmp_path / f"{number}.nii"
        nib.save(make_volume(rng, 40, (20, 20, 20), np.eye(4)), paths[f"s{number}"])
    study = load_nifti(paths, mask=mask)
    study["s0"].data()  # imports and caches
    tracemalloc.start()
    study.save(tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # a volume, its masked copy and the samples of one subject, never of six
    assert peak < 5 * one


# --- what a run and a space refuse ---------------------------------------------------


def test_volumes_can_be_chosen_by_a_mask(rng):
    image, space = make_volume(rng, 6), VolumeSpace(make_mask(rng))
    chosen = np.array([True, False, True, True, False, False])
    whole = read_run(image, space)
    assert_array_equal(read_run(Run(image, sample_mask=chosen), space), whole[chosen])
    with pytest.raises(InputError, match="sample_mask does not fit: boolean"):
        read_run(Run(image, sample_mask=chosen[1:]), space)
    with pytest.raises(InputError, match="sample_mask leaves no volume at all"):
        read_run(Run(image, sample_mask=np.zeros(6, bool)), space)
    with pytest.raises(StudyError, match="Subject 'a' has no samples"):
        load_nifti({"a": Run(image, sample_mask=[])}, mask=make_mask(rng))


def test_a_run_that_changed_since_it_was_opened_is_named(rng, tmp_path):
    path, mask = tmp_path / "a.nii", make_mask(rng)
    nib.save(make_volume(rng, 8), path)
    study = load_nifti({"a": path}, mask=mask)
    nib.save(make_volume(rng, 7), path)
    with pytest.raises(StudyError, match="gave 7 volumes where its header announced 8"):
        study["a"].data()


def test_one_confound_may_be_a_vector(rng):
    image, mask = make_volume(rng, 8), make_mask(rng)
    column = np.arange(8.0)
    one = load_nifti({"a": Run(image, column)}, mask=mask)
    other = load_nifti({"a": Run(image, column[:, None])}, mask=mask)
    assert_array_equal(one["a"].data(), other["a"].data())


def test_masks_and_runs_of_other_dimensions(rng):
    flat = make_mask(rng)
    deep = nib.Nifti1Image(np.asarray(flat.dataobj)[..., None], AFFINE)
    assert VolumeSpace(deep) == VolumeSpace(flat)
    plane = nib.Nifti1Image(np.zeros((5, 6), np.float32), AFFINE)
    with pytest.raises(StudyError, match="a run has 3 or 4 dimensions"):
        load_nifti({"a": plane}, mask=flat)


@pytest.mark.parametrize("dtype", [np.int64, np.float16, bool])
def test_values_of_any_real_type_become_an_image(rng, dtype):
    space = VolumeSpace(make_mask(rng))
    values = (np.arange(space.n_voxels) % 2).astype(dtype)
    image = space.to_image(values)
    assert image.get_data_dtype() == np.float32
    assert_array_equal(image.get_fdata()[space.mask], values)


def test_reading_that_needs_too_much_memory_is_said():
    said = r"does not fit into memory .*Check the shape"
    with pytest.raises(StudyError, match=said), reading("bold.nii"):
        raise MemoryError


def test_cifti_without_grayordinates_is_refused(rng):
    axis = nib.cifti2.ScalarAxis(["a", "b"])
    parcels = nib.Cifti2Image(np.zeros((2, 2), np.float32), header=(axis, axis))
    with pytest.raises(StudyError, match="CIFTI file of ScalarAxis x ScalarAxis"):
        CiftiSpace(parcels)


def test_surfaces_in_memory_and_surfaces_that_do_not_fit(rng):
    left = SurfaceSpace({"CortexLeft": 4}).to_image(rng.normal(size=(3, 4)))
    study = load_gifti({"a": left}, t_r=2.0)
    assert study["a"].data().shape == (3, 4)
    wall = SurfaceSpace({"CortexLeft": 5}).to_image(np.ones(5))
    with pytest.raises(StudyError, match=r"vertices .* the mask .*same surface"):
        load_gifti({"a": left}, mask=wall)
    both = SurfaceSpace({"CortexLeft": 4, "CortexRight": 4})
    with pytest.raises(StudyError, match=r"has the structures \['CortexLeft'\]"):
        both.header(left)
    with pytest.raises(StudyError, match="no vertices inside its mask"):
        SurfaceSpace({"CortexLeft": np.zeros(4)})
