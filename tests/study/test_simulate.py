from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import block_diag
from sklearn.neighbors import NearestCentroid

from brainweave._core.exceptions import InputError
from brainweave.study import SimulationSettings, simulate_study

FEW_SOURCES = SimulationSettings(n_nuisance=5)

SMALL = {
    "n_subjects": 3,
    "categories": 4,
    "n_runs": 2,
    "n_voxels": (150, 250),
    "settings": SimulationSettings(n_nuisance=15),
}
NO_NOISE = {"local_noise": 0, "structured_noise": 0, "spontaneous": 0}


def small(**settings):
    """Return the small study's options with other settings."""
    return {**SMALL, "settings": replace(SMALL["settings"], **settings)}


def standardised(X, rows):
    return (X - X[rows].mean(axis=0)) / X[rows].std(axis=0)


def first_half(labels):
    rows = np.zeros(len(labels), dtype=bool)
    for category in np.unique(labels):
        found = np.flatnonzero(labels == category)
        rows[found[: len(found) // 2]] = True
    return rows


def align_by_labels(Xs, ys, energy, n_components=7):
    """Graph-based decoding model, as its Algorithm 1 says, with the full graph."""
    parts = []
    for X in Xs:
        d, V = np.linalg.eigh(np.asarray(X @ X.T, dtype=np.float64))
        d, V = d[::-1], V[:, ::-1]
        d, V = d[d > d[0] * 1e-10], V[:, d > d[0] * 1e-10]
        share = np.cumsum(np.sqrt(d)) / np.sqrt(d).sum()
        n = min(int(np.searchsorted(share, energy - 1e-12)) + 1, len(d))
        parts.append((V[:, :n], d[:n]))
    y = np.concatenate(ys)
    G = np.where(y[:, None] == y[None, :], 1.0, -1.0)
    V = block_diag(*[V for V, _ in parts])
    _, E = np.linalg.eigh(V.T @ (np.diag(G.sum(axis=1)) - G) @ V)
    blocks = np.split(E[:, :n_components], np.cumsum([len(d) for _, d in parts])[:-1])
    return [X.T @ (V / d @ B) for X, (V, d), B in zip(Xs, parts, blocks, strict=True)]


def accuracy(study, energy=None):
    """Classify the second half of each subject by that of the others."""
    X = [s.data() for s in study]
    first = [first_half(s.labels) for s in study]
    y = [s.labels for s in study]
    Z = [standardised(x, rows) for x, rows in zip(X, first, strict=True)]
    if energy is not None:
        maps = align_by_labels(
            [z[rows] for z, rows in zip(Z, first, strict=True)],
            [labels[rows] for labels, rows in zip(y, first, strict=True)],
            energy,
        )
        Z = [z @ W for z, W in zip(Z, maps, strict=True)]
    rest = [(z[~rows], t[~rows]) for z, t, rows in zip(Z, y, first, strict=True)]
    scores = []
    for out in range(len(study)):
        others = [r for i, r in enumerate(rest) if i != out]
        model = NearestCentroid().fit(
            np.vstack([z for z, _ in others]), np.concatenate([t for _, t in others])
        )
        scores.append(model.score(*rest[out]))
    return float(np.mean(scores))


def test_alignment_by_labels_lifts_the_default_study_from_chance():
    # one mask for all, since without alignment voxels must at least be as many
    study = simulate_study(n_voxels=1200, n_subjects=6)
    assert accuracy(study) < 0.25  # chance is 0.125
    assert accuracy(study, energy=0.82) > 0.5


def test_keeping_all_or_few_dimensions_is_worse():
    study = simulate_study(n_voxels=1000, n_subjects=6, random_state=2)
    good = accuracy(study, energy=0.8)
    assert good > accuracy(study, energy=1.0) + 0.05
    assert good > accuracy(study, energy=0.15) + 0.2


def test_samples_without_noise_are_the_shared_responses_through_the_maps():
    study = simulate_study(**small(**NO_NOISE))
    for i, subject in enumerate(study):
        truth = study.truth
        expected = truth.shared[i] @ truth.maps[i] * 2.5 / np.sqrt(10)
        samples = subject.data() - study.simulation.brain(i).baseline
        assert_allclose(samples, expected, atol=1e-3)


def test_long_responses_without_variation_are_the_centroids():
    study = simulate_study(**small(variability=0, duration=60.0))
    truth, subject = study.truth, study[0]
    begun = np.flatnonzero(np.append(True, subject.stimuli[1:] != subject.stimuli[:-1]))
    since = subject.onsets - np.repeat(
        subject.onsets[begun], np.diff(np.append(begun, subject.n_samples))
    )
    # after the response to the block before, and while the block is shown
    settled = (since > 32) & (since < 55)
    which = [study.categories.index(c) for c in subject.labels[settled]]
    level = truth.shared[0][settled] / truth.centroids[which]
    assert settled.sum() > 50
    assert_allclose(level, level[0, 0], rtol=1e-9)
    assert 0.8 < level[0, 0] < 1


def test_same_seed_same_study_other_seed_another():
    one, two, other = (simulate_study(**SMALL, random_state=s) for s in (3, 3, 4))
    assert_allclose(one[2].data(), two[2].data(), rtol=0)
    assert one[0].n_voxels != other[0].n_voxels or not np.allclose(
        one[0].data()[:, 0], other[0].data()[:, 0]
    )


def test_no_seed_draws_one_and_keeps_it():
    study = simulate_study(**SMALL, random_state=None)
    again = simulate_study(**SMALL, random_state=study.simulation.seed)
    assert_allclose(study[0].data(), again[0].data(), rtol=0)


def test_every_subject_has_its_own_sequence_and_voxels():
    study = simulate_study(**SMALL)
    assert study[0].labels.tolist() != study[1].labels.tolist()
    assert len({s.n_voxels for s in study}) > 1
    assert sorted(study[0].labels) == sorted(study[1].labels)


def test_shared_sequence_is_shared():
    study = simulate_study(**SMALL, own_sequence=False)
    assert study[0].labels.tolist() == study[2].labels.tolist()
    # neural variation from trial to trial aside, the responses are the same
    still = simulate_study(**small(variability=0), own_sequence=False)
    assert_allclose(still.truth.shared[0], still.truth.shared[2], atol=1e-12)


def test_one_number_of_voxels_means_one_mask():
    study = simulate_study(**{**SMALL, "n_voxels": 200})
    assert study[0].space == study[2].space
    assert study[0].space.n_voxels == 200
    own = simulate_study(**{**SMALL, "n_voxels": [200, 210, 220]})
    assert [s.n_voxels for s in own] == [200, 210, 220]
    assert own[0].space != own[1].space


def test_share_of_missing_samples_is_exact():
    full = simulate_study(**SMALL)
    study = simulate_study(**SMALL, missing_samples=0.25)
    assert [s.n_samples for s in study] == [s.n_samples * 3 // 4 for s in full]
    # those left are the ones of the full study
    when = [list(zip(s.runs, s.onsets, strict=True)) for s in (full[0], study[0])]
    rows = [when[0].index(moment) for moment in when[1]]
    assert_allclose(study[0].data(), full[0].data()[rows], rtol=0)


def test_subjects_can_lack_runs_and_categories():
    study = simulate_study(**SMALL, missing_runs=1, missing_categories=2)
    assert [s.run_ids for s in study] == [[1, 2], [1, 2], [2]]
    assert [len(s.categories) for s in study] == [4, 3, 3]


def test_what_others_lack_does_not_change_a_subject():
    full = simulate_study(**SMALL)
    some = simulate_study(**SMALL, missing_runs=1, missing_categories=1)
    assert_allclose(full[0].data(), some[0].data(), rtol=0)


def test_rest_can_be_kept_without_a_label():
    study = simulate_study(**small(keep_rest=True))
    dropped = simulate_study(**SMALL)
    assert study[0].n_unlabelled > 0
    labelled = ~study[0].unlabelled()
    assert_allclose(study[0].data()[labelled], dropped[0].data(), rtol=0)


def test_movie_has_the_same_moments_for_all():
    study = simulate_study(**small(variability=0), design="movie")
    assert study[0].stimuli.tolist() == study[1].stimuli.tolist()
    assert len(set(study[0].stimuli)) == study[0].n_samples
    assert_allclose(study.truth.shared[0], study.truth.shared[1], atol=1e-12)
    # and it moves within a scene
    first = study[0].stimuli == np.char.add(
        np.char.partition(study[0].stimuli, "@")[:, 0], "@0.00"
    )
    assert first.sum() < study[0].n_samples / 2
    change = np.diff(study.truth.shared[0], axis=0)[~first[1:]]
    assert np.abs(change).mean() > 0.05


def test_scrambled_movie_shows_the_same_scenes_in_another_order():
    study = simulate_study(**SMALL, design="movie", own_sequence=True)
    assert study[0].stimuli.tolist() != study[1].stimuli.tolist()


def test_two_experiments_with_the_same_seed_have_the_same_brains():
    blocks = simulate_study(**SMALL)
    movie = simulate_study(**SMALL, design="movie")
    for one, two in zip(blocks.truth.maps, movie.truth.maps, strict=True):
        assert_allclose(one, two, rtol=0)
    assert_allclose(blocks.truth.centroids, movie.truth.centroids, rtol=0)


def test_noise_is_autocorrelated_and_of_low_rank():
    study = simulate_study(
        **small(spontaneous=0, keep_rest=True, local_noise=0.05), signal=0
    )
    run = study[0].data()[study[0].runs == 1]
    noise = run - run.mean(axis=0)
    spectrum = np.linalg.svd(noise, compute_uv=False) ** 2
    assert spectrum[:15].sum() > 0.99 * spectrum.sum()
    lag = (noise[1:] * noise[:-1]).sum() / (noise**2).sum()
    assert lag > 0.5


@pytest.mark.parametrize(
    ("shape", "aligned"),
    [((2, 994, 120, 8), True), ((3, 485, 90, 4), False), ((2, 271, 100, 2), True)],
)
def test_shape_of_a_published_study_is_exact(shape, aligned):
    n_subjects, n_samples, n_voxels, n_categories = shape
    study = simulate_study(
        n_subjects=n_subjects,
        n_samples=n_samples,
        n_voxels=n_voxels,
        categories=n_categories,
        own_sequence=not aligned,
        settings=FEW_SOURCES,
    )
    assert len(study) == n_subjects
    assert all(s.n_samples == n_samples for s in study)
    assert all(s.n_voxels == n_voxels for s in study)
    assert len(study.categories) == n_categories
    same = study[0].labels.tolist() == study[1].labels.tolist()
    assert same == aligned
    counts = np.unique(study[0].labels, return_counts=True)[1]
    assert counts.min() > 0.8 * counts.max()


def test_movie_of_given_length_is_aligned():
    study = simulate_study(
        n_subjects=2, n_samples=203, n_voxels=80, design="movie", settings=FEW_SOURCES
    )
    assert study[0].n_samples == 203
    assert study[0].stimuli.tolist() == study[1].stimuli.tolist()


def test_weights_go_back_to_the_brain():
    study = simulate_study(**SMALL)
    image = study[0].space.to_image(study.truth.maps[0])
    assert image.shape[:3] == study[0].space.mask.shape
    assert_allclose(image.get_fdata()[study[0].space.mask].T, study.truth.maps[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_subjects": 0}, "n_subjects of .* must be > 0, got 0"),
        ({"categories": 0}, "at least one"),
        ({"categories": ["a", "a"]}, "must be different names"),
        ({"design": "rest"}, "design of simulate_study must be one of 'blocks'"),
        ({"missing_samples": 1.0}, "must be in \\[0, 1\\)"),
        ({"signal": -1}, "signal of .* must be >= 0, got -1"),
        ({"n_voxels": [100]}, "a number for each of the 3 subjects"),
        ({"n_voxels": (300, 200)}, "a tuple \\(least, most\\)"),
        ({"n_voxels": 0}, "must be a number above 0"),
        ({"missing_runs": 4}, r"missing_runs of .* must be in \[0, 3\], got 4"),
        ({"n_runs": 0}, "n_runs of .* must be > 0, got 0"),
        ({"repetitions": 0}, "repetitions of .* must be > 0, got 0"),
        ({"n_samples": 0}, "n_samples of .* must be > 0, got 0"),
        ({"missing_runs": 1, "n_runs": 1}, "would leave subjects with nothing"),
        ({"design": "events", "n_samples": 50}, "set n_runs and repetitions"),
    ],
)
def test_impossible_studies_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        simulate_study(**{**SMALL, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tr": 0}, "tr of .* must be > 0, got 0"),
        ({"duration": -1.0}, "duration of .* must be > 0, got -1.0"),
        ({"local_noise": -1}, "local_noise of .* must be >= 0, got -1"),
        ({"gap": (3.0, 1.0)}, "must be \\(least, most\\)"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        SimulationSettings(**options)


def test_text_is_not_a_list_of_categories():
    with pytest.raises(TypeError, match="must be a number or a list"):
        simulate_study(categories="face")
