"""Every exported aligner goes through every evaluation."""

import numpy as np
import pytest

import brainweave as bw
from brainweave.aligners.base import BaseAligner
from brainweave.evaluation import between_subject_reconstruction
from brainweave.exceptions import InputError
from evaluation_studies import locked_lists

PARCELS = 1 + np.arange(40) % 3
ALIGNERS = {
    "GDM": bw.GDM(3),
    "GDMCV": bw.GDMCV(n_components=[2, 3], energies=[0.5, 0.9]),
    "Hyperalignment": bw.Hyperalignment(),
    "RegularizedHyperalignment": bw.RegularizedHyperalignment(),
    "KernelHyperalignment": bw.KernelHyperalignment(4, kernel_params={"hp": 200.0}),
    "SVDHyperalignment": bw.SVDHyperalignment(4),
    "SRM": bw.SRM(4),
    "DetSRM": bw.DetSRM(4),
    "RobustSRM": bw.RobustSRM(4),
    "SemiSupervisedSRM": bw.SemiSupervisedSRM(4),
    "NoAlignment": bw.NoAlignment(),
    "Parcelwise": bw.Parcelwise(bw.DetSRM(4), PARCELS),
    "Searchlight": bw.Searchlight(
        bw.DetSRM(4),
        radius=8,
        coordinates=np.arange(40.0)[:, None],
        centers=np.arange(4, 40, 8),
    ),
}


def exported():
    classes = [getattr(bw, name) for name in bw.__all__]
    return {
        c.__name__
        for c in classes
        if isinstance(c, type) and issubclass(c, BaseAligner)
    }


def test_none_is_left_out():
    assert exported() == set(ALIGNERS)


def test_every_aligner_says_whether_it_takes_bases(rng):
    X = locked_lists(rng)
    bases = [bw.SubjectBasis(x) for x in X]
    y = [np.arange(60) % 4] * 4
    for aligner in ALIGNERS.values():
        if aligner._takes_bases:
            kernel = aligner.get_params().get("kernel", "linear")
            given = bases if kernel == "linear" else X
            assert len(aligner.fit(given, y).maps_) == 4
        else:
            with pytest.raises(TypeError, match="SubjectBasis"):
                aligner.fit(bases, y)


@pytest.fixture
def study(rng):
    # the same categories in the same rows, so that every method can take it
    labels = np.arange(60) % 4
    X = locked_lists(rng, n_subjects=3)
    means = 2 * rng.standard_normal((4, 40))
    return bw.Study(
        bw.Subject(f"s{i}", x + means[labels], labels=labels, stimuli=np.arange(60))
        for i, x in enumerate(X)
    )


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("name", ALIGNERS)
def test_classification(study, name, protocol):
    result = bw.between_subject_classification(
        ALIGNERS[name], study, protocol=protocol, halves="category", random_state=0
    )
    assert len(result.scores) == 6
    assert result.mean > 0.4  # chance is a quarter


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("name", ALIGNERS)
def test_matching_of_segments(study, name, protocol):
    result = bw.between_subject_matching(
        ALIGNERS[name], study, protocol=protocol, window=4, random_state=0
    )
    assert np.isfinite(result.mean)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("name", ALIGNERS)
def test_reconstruction_of_voxels(study, name, protocol):
    def score():
        return between_subject_reconstruction(
            ALIGNERS[name], study, protocol=protocol, random_state=0
        )

    if name == "KernelHyperalignment":
        with pytest.raises(InputError, match="only the linear kernel"):
            score()
    else:
        assert np.isfinite(score().mean)
