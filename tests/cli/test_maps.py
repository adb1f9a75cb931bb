"""brainweave map: from a study folder to images, a table and a report."""

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

import brainweave as bw


@pytest.fixture(scope="module")
def brains(tmp_path_factory):
    """A study folder of volumes, and an atlas of four parcels for it."""
    folder = tmp_path_factory.mktemp("brains")
    study = bw.simulate_brains(4, shape=(6, 6, 6), n_samples=40, signal=1.0)
    study.save(folder / "study")
    space = study[0].space
    labels = 1 + np.arange(6)[:, None, None] // 3 + np.zeros((6, 6, 6), np.int16)
    nib.save(nib.Nifti1Image(labels.astype(np.int16), space.affine), folder / "a.nii")
    return folder


def test_parcels_are_mapped_as_in_the_library(brains, tmp_path, call):
    out = tmp_path / "map"
    how = ("--graph", "time", "--n-components", 3, "--param", "shrinkage=0.5")
    said, _ = call(
        "map", brains / "study", "--parcels", brains / "a.nii", *how, "-o", out
    )
    table = pd.read_csv(out / "places.tsv", sep="\t")
    aligner = bw.GDM(3, graph="time", shrinkage=0.5)
    model = bw.Parcelwise(aligner, nib.load(brains / "a.nii"))
    want = bw.information_map(model, bw.Study.open(brains / "study"))
    assert np.allclose(table["score"], want.to_frame()["score"])
    assert str(want) in said
    image = nib.load(out / "stat-score_statmap.nii.gz").get_fdata()
    assert set(np.unique(image)) <= {0.0, *table["score"].astype(np.float32)}
    page = (out / "report.html").read_text("utf-8")
    assert 'id="information-maps"' in page
    assert 'id="information-places"' in page
    assert page.count("<img") == 3  # with and without alignment, and the difference
    again = tmp_path / "again"
    call("map", brains / "study", "--config", out / "map.toml", "-o", again, "-q")
    assert (again / "places.tsv").read_text() == (out / "places.tsv").read_text()


def test_searchlights_have_centers_half_a_radius_apart(brains, tmp_path, call):
    out = tmp_path / "map"
    how = ("--method", "hyperalignment", "--searchlight", 8)
    call("map", brains / "study", *how, "-o", out, "--param", "leave_out=2")
    table = pd.read_csv(out / "places.tsv", sep="\t")
    at = table[["x", "y", "z"]].to_numpy()
    apart = np.linalg.norm(at[:, None] - at, axis=2)
    assert apart[apart > 0].min() >= 4


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), "Choose places with"),
        (("--parcels", "a", "--searchlight", 9), "Choose places with"),
    ],
)
def test_wrong_usage_is_told(brains, tmp_path, call, options, text):
    _, err = call("map", brains / "study", *options, "-o", tmp_path / "m", code=2)
    assert text in " ".join(err.split())
