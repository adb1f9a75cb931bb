"""Scores of people who missed parts: what both saw is compared, by stimulus ids."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from brainweave import (
    GDM,
    SRM,
    NoAlignment,
    RegularizedHyperalignment,
    Study,
    Subject,
    between_subject_classification,
    split_study,
    time_segment_matching,
)
from brainweave.evaluation.metrics import timeline
from evaluation_studies import locked_lists, score_matching, score_reconstruction

PROTOCOLS = ("joint", "held-out")


def with_gaps(X, missing):
    """Drop samples; return what is left and the ids of it."""
    ids = [
        np.setdiff1d(np.arange(len(x)), gone)
        for x, gone in zip(X, missing, strict=True)
    ]
    return [x[t] for x, t in zip(X, ids, strict=True)], [t.tolist() for t in ids]


def literal_matching(shared, ids, window, enough):
    """Segment by segment, over the samples that both have; None does not count."""
    z = [(s - s.mean(axis=0)) / s.std(axis=0) for s in shared]
    n = 1 + max(map(max, ids))
    at = [dict(zip(own, rows, strict=True)) for own, rows in zip(ids, z, strict=True)]
    scores, chances = [], []
    for i, own in enumerate(at):
        rest = [d for j, d in enumerate(at) if j != i]
        others = {
            t: np.mean([d[t] for d in rest if t in d], axis=0)
            for t in range(n)
            if any(t in d for d in rest)
        }
        hits, guesses, wrong = [], [], []
        for s in range(n - window + 1):
            everywhere = {}
            for t in range(n - window + 1):
                both = [o for o in range(window) if s + o in own and t + o in others]
                if len(both) >= enough * window:
                    a = np.concatenate([own[s + o] for o in both])
                    b = np.concatenate([others[t + o] for o in both])
                    everywhere[t] = np.corrcoef(a, b)[0, 1]

            def wins(right, known=everywhere):
                rivals = [r for t, r in known.items() if abs(t - right) >= window]
                return known[right] > max(rivals, default=-1)

            far = [t for t in everywhere if abs(t - s) >= window]
            if s in everywhere and far:
                hits.append(wins(s))
                guesses.append(1 / (1 + len(far)))
                wrong += [wins(t) for t in far]
        scores.append(np.mean(hits))
        chances.append(np.mean(np.maximum(guesses, np.mean(wrong))))
    return np.array(scores), np.mean(chances)


@pytest.mark.parametrize(("window", "enough"), [(5, 0.5), (4, 1.0), (6, 0.3)])
def test_matching_with_gaps_equals_its_literal_definition(rng, window, enough):
    story = rng.normal(size=(40, 3))
    X = [story + 2.0 * rng.normal(size=story.shape) for _ in range(4)]
    missing = [range(10), [12, 15, 16, 17, 30], range(28, 40), []]
    seen, ids = with_gaps(X, missing)
    found = time_segment_matching(seen, ids, window=window, enough=enough)
    scores, chance = literal_matching(seen, ids, window, enough)
    assert 0 < scores.mean() < 1
    assert_allclose(found.scores, scores, atol=1e-12)
    assert_allclose(found.chance, chance, rtol=1e-12)
    assert found.n_samples.tolist() == [30, 35, 28, 40]
    assert np.isnan(found.matched[0, : 10 - window]).all()


def test_the_same_ids_for_all_change_nothing(rng):
    X = [rng.normal(size=(40, 3)) for _ in range(3)]
    plain = time_segment_matching(X, window=4)
    named = time_segment_matching(X, [[f"s{7 * t}" for t in range(40)]] * 3, window=4)
    assert_array_equal(plain.scores, named.scores)
    assert plain.chance == named.chance


def test_samples_of_another_order_are_compared_by_their_ids(rng):
    story = rng.normal(size=(40, 3))
    orders = [rng.permutation(40) for _ in range(3)]
    found = time_segment_matching([story[o] for o in orders], orders, window=4)
    assert found.mean == 1.0


def test_segments_do_not_cross_films(rng):
    story = rng.normal(size=(30, 3))
    ids = [f"{film}@{t}" for film in "ab" for t in range(15)]
    keep = np.arange(1, 30)
    found = time_segment_matching(
        [story, story, story[keep]], [ids, ids, [ids[t] for t in keep]], window=5
    )
    assert np.isnan(found.matched[0, 11:15]).all()
    assert not np.isnan(found.matched[0, [10, 15]]).any()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("model", [GDM(4, graph="time"), SRM(4, random_state=0)])
def test_ids_on_complete_data_change_no_number(rng, protocol, model):
    X = locked_lists(rng, noise=3.0)
    ids = [list(range(60))] * 4
    for score in (score_matching, score_reconstruction):
        plain = score(model, X, protocol=protocol)
        named = score(model, X, ids, protocol=protocol)
        assert_allclose(named.scores, plain.scores, atol=1e-9)
        assert named.chance == plain.chance
        assert (named.n_samples == 30).all()
        apart = ~np.eye(4, dtype=bool)
        assert (named.common[0] == 30 * apart).all()


MODELS = {
    "GDM": GDM(4, graph="time"),
    "SRM": SRM(4, random_state=0),
    "RHA": RegularizedHyperalignment(4),
    "none": NoAlignment(),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", MODELS)
def test_every_aligner_is_scored_on_a_film_with_gaps(rng, protocol, name):
    X = locked_lists(rng, n_samples=80, noise=0.5)
    seen, ids = with_gaps(X, [[], range(20, 28), range(70, 80), range(6)])
    result = score_matching(MODELS[name], seen, ids, window=5, protocol=protocol)
    assert result.n_samples.tolist() == [[40, 40, 30, 40], [40, 32, 40, 34]]
    assert (result.common > 0).sum(axis=-1).tolist() == [[3] * 4] * 2
    n_aligning = result.study["n_aligning"]
    if name in ("SRM", "RHA"):  # on what all saw
        assert n_aligning == [[26] * 4, [30] * 4]
    else:
        assert n_aligning == [[40, 32, 40, 34], [40, 40, 30, 40]]
    if name != "none":
        assert result.mean > 0.9
    assert "30 to 40 samples per subject" in str(result)
    frame = result.to_frame()
    assert frame["samples"].tolist() == result.n_samples.ravel().tolist()
    assert frame["compared_with"].tolist() == [3] * 8


@pytest.mark.parametrize("score", [score_matching, score_reconstruction])
def test_scores_with_gaps_agree_with_complete_ones_within_their_errors(rng, score):
    """Simulated truth: the same maps, scored on all of a film and on parts of it."""
    differences, errors = [], []
    noise = 7.0 if score is score_matching else 4.0
    for _ in range(6):
        X = locked_lists(rng, n_subjects=5, n_samples=120, noise=noise)
        align, model = [[x[60:] for x in X]], GDM(4, graph="time")
        film = [x[:60] for x in X]
        complete = score(model, split_study(film, align=align), protocol="joint")
        gaps = [[], range(50, 60), range(8), range(20, 30), []]
        seen, ids = with_gaps(film, gaps)
        partial = score(model, split_study(seen, ids, align=align), protocol="joint")
        assert partial.n_samples.tolist() == [[60, 50, 52, 50, 60]]
        assert 0.05 < complete.mean < 0.95
        differences.append(partial.mean - complete.mean)
        errors.append(complete.std / np.sqrt(5))
    assert abs(np.mean(differences)) < np.mean(errors)
    assert np.std(differences) < 2 * np.mean(errors)


def test_noise_with_gaps_matches_at_the_chance_of_its_segments(rng):
    found, chance = [], []
    for _ in range(20):
        X = [rng.normal(size=(60, 4)) for _ in range(4)]
        seen, ids = with_gaps(X, [range(30), range(20, 40), [], range(45, 60)])
        result = time_segment_matching(seen, ids, window=3)
        found.append(result.mean)
        chance.append(result.chance)
    assert 1 / 58 < np.mean(chance) < 1 / 25
    error = np.std(found, ddof=1) / np.sqrt(20)
    assert abs(np.mean(found) - np.mean(chance)) < 4 * error


def test_someone_who_shares_nothing_in_one_half_has_no_score_there(rng):
    X = locked_lists(rng, n_samples=80)
    # in the second half, the last saw what nobody else saw
    gaps = [range(60, 80), range(60, 80), range(60, 80), range(40, 60)]
    seen, ids = with_gaps(X, gaps)
    result = score_matching(NoAlignment(), seen, ids, window=5)
    assert np.isnan(result.scores[0, 3])
    assert np.isfinite(np.delete(result.scores.ravel(), 3)).all()
    assert np.isfinite(result.mean)
    assert result.n_samples[0, 3] == 0


def test_halves_of_a_film(rng):
    X = locked_lists(rng, n_subjects=3, n_samples=40)
    by_time = split_study(X, halves="time", border=3)
    assert [s.n_samples for s in by_time.splits[0].aligning] == [20] * 3
    assert [s.n_samples for s in by_time.splits[0].scored] == [17] * 3
    seen, ids = with_gaps(X, [[], range(20, 40), []])
    with pytest.raises(ValueError, match=r"'1' saw nothing of the second half.*block"):
        split_study(seen, ids)
    blocks = split_study(seen, ids, halves="time", block=10, border=2)
    shown = [
        [s.stimuli.tolist() for s in h]
        for h in (blocks.splits[0].aligning, blocks.splits[0].scored)
    ]
    assert shown[0][0] == [*range(10), *range(22, 30)]
    assert shown[1][0] == [*range(12, 20), *range(32, 40)]
    assert shown[1][1] == [*range(12, 20)]
    assert blocks.design["block"] == 10
    films = [f"{film}@{t}" for film in "abc" for t in range(10)]
    by_film = split_study([x[:30] for x in X], [films] * 3, halves="film")
    assert by_film.splits[0].scored[0].stimuli.tolist() == films[20:]
    with pytest.raises(ValueError, match="at least two films"):
        split_study(X, [list(range(40))] * 3, halves="film")
    with pytest.raises(ValueError, match="needs stimulus ids that name films"):
        split_study(X, halves="film")
    labels = [["x", "y"] * 20] * 3
    with pytest.raises(ValueError, match="use them with halves='time'"):
        split_study(X, labels, block=5)


def test_samples_that_aligned_are_not_scored_but_stand_in_the_average(rng):
    X = locked_lists(rng, n_samples=60, noise=0.2)
    parts = [slice(0, 40), slice(0, 40), slice(20, 60), slice(20, 60)]
    ids = [list(range(60))[p] for p in parts]
    seen = Study(
        Subject(str(i), X[i][p], stimuli=own)
        for i, (p, own) in enumerate(zip(parts, ids, strict=True))
    )
    story = Study(Subject(str(i), x, stimuli=range(60)) for i, x in enumerate(X))
    groups = [0, 0, 1, 1]
    result = score_matching(
        GDM(4, graph="time"),
        split_study(story, align=[seen]),
        groups=groups,
        window=5,
        protocol="joint",
    )
    assert result.n_samples.tolist() == [[20] * 4]
    assert result.common[0, 0].tolist() == [0, 0, 20, 20]
    assert result.mean > 0.9
    labelled = [list("abc") * 20] * 4
    split = split_study(X, labelled, align=[[x[:20] for x in X]])
    with pytest.raises(ValueError, match="took part in the alignment"):
        between_subject_classification(GDM(2), split)


def test_ids_are_not_categories(rng):
    X = locked_lists(rng, n_samples=40)
    seen, ids = with_gaps(X, [[], range(5), [], []])
    with pytest.raises(ValueError, match=r"stimulus ids alone.*measure='matching'"):
        between_subject_classification(GDM(4, graph="time"), seen, ids)
    labels = np.arange(40) % 4
    study = Study(
        Subject(str(i), x + 3 * labels[t, None], labels=labels[t])
        for i, (x, t) in enumerate(zip(seen, map(np.array, ids), strict=True))
    )
    result = between_subject_classification(GDM(4, graph="time"), study, ids)
    assert result.scores.shape == (8,)


def test_wrong_ids_get_one_sentence(rng):
    X = [rng.normal(size=(20, 3)) for _ in range(3)]
    own = list(range(20))
    with pytest.raises(ValueError, match=r"'1' has the stimulus id 3 more than once"):
        time_segment_matching(X, [own, [3, *own[1:]], own])
    with pytest.raises(ValueError, match=r"'2' advance by 2, those of '0' by 1"):
        time_segment_matching(X, [own, own, [2 * t for t in own]])
    with pytest.raises(ValueError, match=r"'2' has no stimulus id in common.*100"):
        time_segment_matching(X, [own, own, [100 + t for t in own]])
    with pytest.raises(ValueError, match=r"20 samples, but stimuli have shape \(19,\)"):
        time_segment_matching(X, [own, own, own[1:]])
    with pytest.raises(ValueError, match=r"'2' has no stimulus id in common"):
        score_matching(
            NoAlignment(),
            X,
            [own, own, [100 + t for t in own]],
            window=3,
            halves=[np.arange(20) < 10] * 3,
        )
    with pytest.raises(ValueError, match="enough of Matching"):
        score_matching(NoAlignment(), X, enough=0)
    with pytest.raises(ValueError, match="groups has 2 entries for 3 subjects"):
        score_matching(NoAlignment(), X, groups=[0, 1], window=3)


def test_someone_who_saw_every_second_sample_has_the_units_of_the_others():
    whole, half = list(range(20)), list(range(0, 20, 2))
    for ids in ([whole, half], [half, whole], [whole, whole, half]):
        line = timeline(ids, ["a", "b", "c"][: len(ids)])
        assert line.films.size == 20
        assert line.seen.sum(axis=1).tolist() == [len(own) for own in ids]
    with pytest.raises(ValueError, match=r"'b' advance by 1500, those of 'a' by 1\.5"):
        timeline([[1.5 * t for t in whole], [1500 * t for t in whole]], ["a", "b"])


def test_films_lie_one_after_another_each_on_its_own_grid():
    line = timeline([["b@4.50", "a@0.00", "a@3.00", None], ["a@1.50", "b@0"]], "12")
    assert line.names == ["b", "a"]
    assert line.films.tolist() == [0, 0, 1, 1, 1]
    assert [p.tolist() for p in line.places] == [[1, 2, 4, -1], [3, 0]]


def test_texts_that_are_no_moments_come_in_the_order_in_which_they_were_seen():
    line = timeline([["x", "q", "b"], ["q", "z"]], ["0", "1"])
    assert [p.tolist() for p in line.places] == [[0, 1, 2], [1, 3]]


def test_halves_by_film_take_no_blocks(rng):
    ids = [[f"{film}@{t}.00" for film in "ab" for t in range(20)]] * 3
    X = [rng.normal(size=(40, 5)) for _ in ids]
    with pytest.raises(ValueError, match="block divides time"):
        split_study(X, ids, halves="film", block=5)
