"""Every aligner of the package goes through every evaluation."""

import warnings

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.neighbors import NearestCentroid

import brainweave as bw
from aligners.test_conformance import exported_aligners
from brainweave.evaluation.grid import Grid, GridStudy, run_grid
from brainweave.evaluation.measures import Classification, Matching, Reconstruction
from evaluation_studies import CountedArray, study_lists, three_subjects

PARCELS = np.repeat([1, 2], 10)
NEIGHBORHOODS = [np.arange(12), np.arange(8, 20)]
NEEDS = {
    "Parcelwise": lambda: bw.Parcelwise(bw.DetSRM(2, random_state=0), PARCELS),
    "Searchlight": lambda: bw.Searchlight(
        bw.DetSRM(2, random_state=0), neighborhoods=NEIGHBORHOODS
    ),
    # other kernels have no voxels to predict, and say so
    "KernelHyperalignment": lambda: bw.KernelHyperalignment(2, kernel="linear"),
    "GDMCV": lambda: bw.GDMCV(energies=(0.5, 0.9), n_components=2),
}
ALIGNERS = sorted(exported_aligners())


def make(name):
    if name in NEEDS:
        return NEEDS[name]()
    cls = getattr(bw, name)
    known = {"n_components": 2, "random_state": 0}
    taken = cls().get_params(deep=False)
    return cls(**{k: v for k, v in known.items() if k in taken})


@pytest.fixture
def data(rng):
    """Subjects of one mask who saw the categories in one order."""
    X, y = study_lists(rng, n_subjects=4, n_samples=36, voxels=20, noise=1.0)
    order = np.argsort(y[0] * 0 + np.arange(36) % 3, kind="stable")
    known = np.repeat(np.arange(3), 12)
    by_category = [
        x[np.argsort(own, kind="stable")] for x, own in zip(X, y, strict=True)
    ]
    mixed = np.argsort(order, kind="stable")
    return [x[mixed, :20] for x in by_category], [known[mixed]] * 4


def test_the_list_is_not_empty():
    assert {"GDM", "SRM", "Parcelwise", "Searchlight", "NoAlignment"} <= set(ALIGNERS)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("name", ALIGNERS)
def test_every_aligner_goes_through_every_evaluation(tmp_path, data, name, protocol):
    X, y = data
    model, how = make(name), {"protocol": protocol, "leave_out": 2, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what each says is tested by it
        result = bw.between_subject_classification(model, X, y, **how)
        matching = bw.between_subject_matching(model, X, y, window=3, **how)
        voxels = bw.between_subject_reconstruction(model, X, y, **how)
    assert len(result.scores) == 4
    assert result.method == type(model).__name__
    assert all(k > 0 for k in result.n_components)
    assert result.settings.keys() <= model.get_params(deep=False).keys()
    assert matching.scores.shape == voxels.scores.shape == (2, 4)
    source = GridStudy("s", bw.split_study(X, y), leave_out=2)
    for measure, expected in (
        (Classification(), result.mean),
        (Matching(3), matching.mean),
        (Reconstruction(), voxels.mean),
    ):
        grid = Grid(source, {"m": model}, protocols=(protocol,), measure=measure)
        table = run_grid(grid, tmp_path).to_frame()
        assert (table["error"] == "").all()
        assert_allclose(table["score"].mean(), expected, atol=1e-9)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("name", ["GDM", "NoAlignment", "Parcelwise"])
def test_workers_may_be_other_processes(data, name, protocol):
    X, y = data
    model, how = make(name), {"protocol": protocol, "leave_out": 2, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        alone = bw.between_subject_classification(model, X, y, n_jobs=1, **how)
        with joblib.parallel_config(backend="loky", n_jobs=2):
            apart = bw.between_subject_classification(model, X, y, n_jobs=2, **how)
    assert_allclose(apart.scores, alone.scores, atol=1e-12)


def test_dask_workers_give_the_same(data):
    distributed = pytest.importorskip("distributed", reason="the cluster extra")
    X, y = data
    alone = bw.between_subject_classification(bw.GDM(2), X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Dask, about its own ports and closing
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        )
        with (
            cluster,
            distributed.Client(cluster),
            joblib.parallel_config(backend="dask"),
        ):
            apart = bw.between_subject_classification(bw.GDM(2), X, y, n_jobs=2)
            held = bw.between_subject_matching(
                bw.GDM(2), X, y, window=3, protocol="held-out", n_jobs=2
            )
    assert_allclose(apart.scores, alone.scores, atol=1e-12)
    assert held.scores.shape == (2, 4)


def test_parcels_of_each_subject_are_its_own(rng):
    X, y = study_lists(rng, n_subjects=4, voxels=20)
    parcels = [rng.permutation(np.arange(x.shape[1]) % 2 + 1) for x in X]
    model = bw.Parcelwise(bw.GDM(2), parcels)
    result = bw.between_subject_classification(model, X, y, protocol="held-out")
    assert result.mean > 0.5
    as_lists = model.set_params(parcels=[own.tolist() for own in parcels])
    again = bw.between_subject_classification(as_lists, X, y, protocol="held-out")
    assert_allclose(again.scores, result.scores)


def test_progress_is_told_by_the_library(data, capsys):
    X, y = data
    told = []
    bw.between_subject_classification(
        bw.GDM(2), X, y, n_permutations=30, progress=lambda *said: told.append(said)
    )
    # 2 halves, 4 folds
    assert [t[0] for t in told] == list(range(1, 9))
    assert told[-1] == (8, 8, "GDM, held-out")
    bw.between_subject_matching(bw.GDM(2), X, y, window=3, progress=True)
    with pytest.raises(TypeError, match="progress must be True, False or a function"):
        bw.between_subject_matching(bw.GDM(2), X, y, window=3, progress=3)


def test_rare_categories_weigh_the_same_in_the_balanced_accuracy():
    from sklearn.metrics import balanced_accuracy_score

    from brainweave.evaluation.classifiers import balanced_accuracy

    true, predicted = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 0, 0, 1])
    assert_allclose(balanced_accuracy(true, predicted), 0.75, rtol=1e-12)
    assert_allclose(
        balanced_accuracy(true, predicted),
        balanced_accuracy_score(true, predicted),
        rtol=1e-12,
    )
    # a prediction of what does not occur is wrong, and no category of its own
    assert_allclose(balanced_accuracy(true[:4], predicted[:4] + 2), 0, atol=0)


def test_intersect_goes_by_stimulus_where_there_are_stimuli(rng):
    stimuli = [np.array(list("abcdef")), np.array(list("fedcba"))]
    labels = [np.array([0, 1, 0, 1, 0, 1]), np.array([1, 0, 1, 0, 1, 0])]
    study = bw.Study(
        bw.Subject(str(i), rng.normal(size=(6, 4)), labels=known, stimuli=shown)
        for i, (known, shown) in enumerate(zip(labels, stimuli, strict=True))
    )
    masks = [np.isin(s, list("abcd")) for s in stimuli]
    part = bw.split_study(study, halves=masks, match="intersect").splits[0]
    first, second = (s.stimuli.tolist() for s in part.aligning)
    assert first == second
    assert sorted(first) == list("abcd")


def test_every_method_and_protocol_reads_the_voxels_once_per_half(rng):
    X, y = study_lists(rng, n_subjects=3, voxels=600)
    arrays = [CountedArray(x) for x in X]
    study = bw.Study(
        bw.Subject(str(i), a, labels=known)
        for i, (a, known) in enumerate(zip(arrays, [y[0]] * 3, strict=True))
    )
    split = bw.split_study(study)
    start = sum(a.passes for a in arrays)
    for model in (bw.GDM(2), bw.SRM(2, random_state=0), bw.Hyperalignment(2)):
        for protocol in ("joint", "held-out"):
            bw.between_subject_classification(model, split, protocol=protocol)
    # a pass to align, and one over both halves for the inner products
    assert sum(a.passes for a in arrays) - start == 3 * 2 * 3


def _noise(seed):
    """Return a study of noise; its shape depends on the seed."""
    rng = np.random.default_rng(seed)
    n_subjects, n_categories = 4 + seed % 3, 2 + seed % 4
    y = rng.permutation(np.repeat(np.arange(n_categories), 4 + 2 * (seed % 3)))
    return [rng.normal(size=(len(y), 20)) for _ in range(n_subjects)], [y] * n_subjects


def _p_values_of_noise(name, protocol, n_studies, n_permutations):
    found = []
    for seed in range(n_studies):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # said of noise, rightly
            result = bw.between_subject_classification(
                make(name),
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
    assert _p_values_of_noise(name, protocol, 4, 9).mean() > 0.25


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
