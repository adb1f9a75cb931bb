"""Every aligner of the package goes through every evaluation."""

import warnings

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.neighbors import NearestCentroid

import brainweave as bw
from evaluation_studies import (
    score_matching,
    score_reconstruction,
    study_lists,
    three_subjects,
)
from every_aligner import CASES, aligner_for_scores

ALIGNERS = sorted(CASES)


@pytest.fixture
def data(rng):
    """Subjects of one mask who saw the categories in one order."""
    X, y = study_lists(rng, n_subjects=4, n_samples=36, voxels=40, noise=1.0)
    rows = [np.argsort(own, kind="stable").reshape(3, 12).T.ravel() for own in y]
    same = [x[own, :40] for x, own in zip(X, rows, strict=True)]
    return same, [np.arange(36) % 3] * 4


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("name", ALIGNERS)
def test_every_aligner_goes_through_every_evaluation(data, name, protocol):
    X, y = data
    model, how = (
        aligner_for_scores(name),
        {"protocol": protocol, "leave_out": 2, "random_state": 0},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what each says is tested by it
        result = bw.between_subject_classification(model, X, y, **how)
        matching = score_matching(model, X, y, window=3, **how)
        voxels = score_reconstruction(model, X, y, **how)
    assert len(result.scores) == 4
    assert result.method == type(model).__name__
    assert all(k > 0 for k in result.n_components)
    assert result.settings.keys() <= model.get_params(deep=False).keys()
    assert matching.scores.shape == voxels.scores.shape == (2, 4)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("name", ["GDM", "NoAlignment", "Parcelwise"])
def test_workers_may_be_other_processes(data, name, protocol):
    X, y = data
    model, how = (
        aligner_for_scores(name),
        {"protocol": protocol, "leave_out": 2, "random_state": 0},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        alone = bw.between_subject_classification(model, X, y, n_jobs=1, **how)
        with joblib.parallel_config(backend="loky", n_jobs=2):
            apart = bw.between_subject_classification(model, X, y, n_jobs=2, **how)
    assert_allclose(apart.scores, alone.scores, atol=1e-12)


def test_parcels_of_each_subject_are_its_own(rng):
    X, y = study_lists(rng, n_subjects=4, voxels=20)
    parcels = [rng.permutation(np.arange(x.shape[1]) % 2 + 1) for x in X]
    model = bw.Parcelwise(bw.GDM(2), parcels)
    result = bw.between_subject_classification(model, X, y, protocol="held-out")
    assert result.mean > 0.5
    as_lists = model.set_params(parcels=[own.tolist() for own in parcels])
    again = bw.between_subject_classification(as_lists, X, y, protocol="held-out")
    assert_allclose(again.scores, result.scores)


def _noise(seed):
    """Return a study of noise; its shape depends on the seed."""
    rng = np.random.default_rng(seed)
    n_subjects, n_categories = 4 + seed % 3, 2 + seed % 4
    y = rng.permutation(np.repeat(np.arange(n_categories), 4 + 2 * (seed % 3)))
    return [rng.normal(size=(len(y), 40)) for _ in range(n_subjects)], [y] * n_subjects


def _p_values_of_noise(name, protocol, n_studies, n_permutations):
    found = []
    for seed in range(n_studies):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # said of noise, rightly
            result = bw.between_subject_classification(
                aligner_for_scores(name),
                *_noise(seed),
                protocol=protocol,
                leave_out=2,
                classifier=NearestCentroid(),
                n_permutations=n_permutations,
                random_state=seed,
            )
        found.append(result.p_value)
    return np.array(found)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("name", ALIGNERS)
def test_a_little_noise_is_no_finding_by_any_method(name, protocol):
    n_studies = 2 if name in ("GDMCV", "Searchlight") else 4
    assert _p_values_of_noise(name, protocol, n_studies, 9).mean() > 0.25


@pytest.mark.thorough
@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("name", ALIGNERS)
def test_noise_is_no_finding_by_any_method(name, protocol):
    p_values = _p_values_of_noise(name, protocol, 20, 39)
    assert (p_values < 0.05).sum() <= 2
    assert p_values.mean() > 0.3


def test_pieces_of_the_brain_can_be_scored():
    X, y = three_subjects()
    study = bw.Study(bw.Subject(f"s{i}", x, labels=y[0]) for i, x in enumerate(X))
    aligner = bw.Parcelwise(bw.DetSRM(3, random_state=0), 1 + np.arange(120) % 2)
    for protocol in ("joint", "held-out"):
        result = bw.between_subject_classification(aligner, study, protocol=protocol)
        assert result.mean > 0.6


BY_CATEGORY = {"GDMCV": "needs their categories", "SemiSupervisedSRM": "needs labels"}
ALL_HAVE = [[16] * 4, [14] * 4]  # aligning samples, half by half
OWN = [[20, 18, 20, 18], [20, 19, 16, 19]]


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("name", ALIGNERS)
def test_every_aligner_goes_through_a_film_with_gaps(rng, name, protocol):
    story, topography = rng.normal(size=(40, 2)), rng.normal(size=(2, 40))
    missed = [[], [3, 4, 30], range(36, 40), [0, 1, 22]]
    ids = [np.delete(np.arange(40), gone) for gone in missed]
    X = [
        story[own] @ (topography + 0.3 * rng.normal(size=(2, 40)))
        + 0.5 * rng.normal(size=(len(own), 40))
        for own in ids
    ]
    model = aligner_for_scores(name)
    if "graph" in model.get_params():
        model.set_params(graph="time")
    for measure, options in (
        ("matching", {"window": 3}),
        ("isc", {}),
        ("reconstruction", {}),
    ):
        how = {"protocol": protocol, "leave_out": 2, "measure": measure, **options}
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # what each says of little data
            if name in BY_CATEGORY:
                with pytest.raises(ValueError, match=BY_CATEGORY[name]):
                    bw.score_alignment(model, X, ids, **how)
                continue
            result = bw.score_alignment(model, X, ids, **how)
        assert result.n_samples.tolist() == OWN[::-1]
        free = name in ("GDM", "PaperGDM", "NoAlignment")
        assert result.study["n_aligning"] == (OWN if free else ALL_HAVE)
        if name != "PaperGDM":  # it needs more samples than these
            assert result.mean > 0.5
