import numpy as np
import pytest
from numpy.testing import assert_allclose

from brainweave._core.exceptions import InputError
from brainweave.study.formats.events import (
    Events,
    Sampling,
    plan_samples,
    trial_weights,
)

EVENTS = Events.from_rows(
    [(4.0 + 14.0 * k, 2.0, "ab"[k % 2], f"s{k}") for k in range(8)]
)
N, TR = 64, 2.0


def constant(n):
    return {"usable": np.ones(n, bool), "nuisance": np.ones((n, 1))}


def nilearn_betas(data, conditions, high_pass=None, extra=None):
    """Estimate with nilearn's own design matrix and least squares."""
    pd = pytest.importorskip("pandas")
    from nilearn.glm.first_level import make_first_level_design_matrix, run_glm

    table = pd.DataFrame(
        {"onset": EVENTS.onset, "duration": EVENTS.duration, "trial_type": conditions}
    )
    design = make_first_level_design_matrix(
        np.arange(N) * TR,
        table,
        hrf_model="glover",
        drift_model=None if high_pass is None else "cosine",
        high_pass=high_pass,
        add_regs=extra,
    )
    labels, results = run_glm(data, design.to_numpy(), noise_model="ols")
    theta = results[labels[0]].theta
    return {name: theta[k] for k, name in enumerate(design.columns)}


def test_least_squares_separate_agrees_with_nilearn():
    rng = np.random.default_rng(1)
    data = rng.normal(size=(N, 5))
    extra = rng.normal(size=(N, 2))
    plan = plan_samples(
        EVENTS, N, TR, samples="trials", high_pass=0.01, confounds=extra
    )
    for j in range(8):
        names = [
            "this" if k == j else f"other_{EVENTS.label[k]}" for k in range(len(EVENTS))
        ]
        expected = nilearn_betas(data, names, high_pass=0.01, extra=extra)["this"]
        assert_allclose(plan.apply(data)[j], expected, atol=1e-8)


def test_noiseless_amplitudes_are_recovered():
    from nilearn.glm.first_level import compute_regressor

    rng = np.random.default_rng(2)
    amplitudes = rng.normal(size=(8, 3))
    # with one amplitude per category, the model holds the truth
    amplitudes = amplitudes[:2][np.arange(8) % 2]
    times = np.arange(N) * TR
    responses = np.column_stack(
        [
            compute_regressor(([o], [d], [1.0]), "glover", times)[0][:, 0]
            for o, d in zip(EVENTS.onset, EVENTS.duration, strict=True)
        ]
    )
    plan = plan_samples(EVENTS, N, TR, samples="trials")
    assert_allclose(plan.apply(responses @ amplitudes + 7.0), amplitudes, atol=1e-8)


def test_censored_volumes_have_no_weight():
    kept = np.delete(np.arange(N), [5, 6, 30])
    for samples in ("trials", "blocks"):
        plan = plan_samples(EVENTS, N, TR, samples=samples, kept_volumes=kept)
        assert_allclose(plan.weights[:, [5, 6, 30]], 0, atol=0)
    volumes = plan_samples(
        EVENTS, N, TR, sampling=Sampling(keep_rest=True), kept_volumes=kept
    )
    assert volumes.rows.tolist() == kept.tolist()


def test_trial_alone_in_its_category_is_estimated_separately():
    events = Events.from_rows([(4, 2, "a"), (24, 2, "b"), (44, 2, "b")])
    weights = trial_weights(events, 40, 2.0, **constant(40))
    assert np.isfinite(weights).all()
    assert weights.shape == (3, 40)


def test_blocks_are_means_of_their_volumes():
    rng = np.random.default_rng(3)
    data = rng.normal(size=(N, 4)).astype(np.float32)
    events = Events.from_rows([(0, 6, "a", "x"), (20, 4, "b", "y")])
    plan = plan_samples(
        events, N, TR, samples="blocks", sampling=Sampling(hrf_delay=4.0)
    )
    expected = [data[2:5].mean(axis=0), data[12:14].mean(axis=0)]
    assert_allclose(plan.apply(data), expected, rtol=1e-5)
    assert plan.apply(data).dtype == np.float32
    assert plan.stimuli.tolist() == ["x", "y"]


@pytest.mark.parametrize("samples", ["volumes", "blocks", "trials"])
def test_events_after_the_end_of_the_scan_give_no_samples(samples):
    events = Events.from_rows([(4, 2, "a"), (24, 2, "b"), (500, 2, "b")])
    plan = plan_samples(events, 40, 2.0, samples=samples)
    assert plan.labels.tolist() == ["a", "b"]


def test_rest_is_kept_without_a_label_when_asked():
    plan = plan_samples(EVENTS, N, TR, sampling=Sampling(keep_rest=True, hrf_delay=4.0))
    assert len(plan) == N
    assert plan.labels[0] == ""
    assert plan.labels[4] == "a"
    assert_allclose(plan.onsets, np.arange(N) * TR, atol=0)


def test_unknown_samples_are_refused():
    with pytest.raises(InputError, match=r"must be one of .*'trials'"):
        plan_samples(EVENTS, N, TR, samples="runs")


def test_what_became_of_the_events_is_counted():
    rows = [(-20, 2, "a"), (0, 10, "a"), (4, 0, "b"), (19, 1, "b"), (25, 2, "a")]
    plan = plan_samples(
        Events.from_rows(rows), 10, 2.0, sampling=Sampling(hrf_delay=4.0)
    )
    counts = plan.counts
    assert (counts["events"], counts["outside"]) == (5, 2)
    assert counts["shared_volumes"] == 1
    assert plan.labels.tolist() == list("aaaaa")


def test_trials_within_a_block_are_all_estimated():
    # volumes go to one event each, but a model can tell overlapping trials apart
    rows = [(2, 20, "a"), (6, 0, "b"), (30, 4, "a")]
    plan = plan_samples(Events.from_rows(rows), 40, 2.0, samples="trials")
    assert plan.labels.tolist() == ["a", "b", "a"]


def test_drifts_are_cosines_up_to_the_cutoff():
    n, tr, high_pass = 120, 2.5, 0.01
    middle = (np.arange(n)[:, None] + 0.5) / n
    order = int(np.floor(2 * n * high_pass * tr))
    cosines = np.cos(np.pi * np.arange(order + 1) * middle)
    plan = plan_samples(EVENTS, n, tr, samples="trials", high_pass=high_pass)
    assert order == 6
    assert_allclose(plan.weights @ cosines, 0, atol=1e-12)
    faster = np.cos(np.pi * (order + 1) * middle)
    assert np.abs(plan.weights @ faster).max() > 1e-3
