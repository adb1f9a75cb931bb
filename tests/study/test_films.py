"""Moments of films as ids, and subjects with other clocks."""

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from brainweave import (
    GDM,
    load_bids,
    load_nifti,
    match_samples,
    simulate_study,
)
from brainweave._core.exceptions import InputError, StudyError
from brainweave.study import (
    Cleaning,
    SimulationSettings,
    Study,
    Subject,
    film_clock,
)
from brainweave.study.formats.any_format import load_study
from brainweave.study.provenance import describe_record

MASK = nib.Nifti1Image(np.ones((2, 2, 1), np.uint8), np.eye(4))


def course(times):
    """Return samples of a film of two voxels, curved, so that interpolation errs."""
    times = np.asarray(times, dtype=float)
    return np.column_stack([np.sin(times / 3), times**2 / 100])


def viewer(id, times, film="film", **known):
    stimuli = [f"{film}@{time:.2f}" for time in times]
    return Subject(id, course(times), stimuli=stimuli, **known)


def scanned(id, n, t_r, shift=0.0):
    onsets = np.arange(n) * t_r
    return Subject(id, course(onsets + shift), runs=np.ones(n, int), onsets=onsets)


def test_runs_are_films():
    study = Study([scanned("01", 4, 2.5), scanned("02", 3, 2.5)])
    clocked = film_clock(study, "runs")
    assert clocked["01"].stimuli.tolist() == [
        *("run-1@0.00", "run-1@2.50", "run-1@5.00", "run-1@7.50")
    ]
    assert clocked["01"].samples is study["01"].samples


def test_table_says_what_runs_show(tmp_path):
    runs = np.repeat([1, 2], [4, 5])
    onsets = 2.0 * np.concatenate([np.arange(4), np.arange(5)])
    people = [
        Subject(id, course(onsets), runs=runs, onsets=onsets) for id in ("01", "02")
    ]
    table = tmp_path / "films.tsv"
    table.write_text(
        "subject\trun\tfilm\tonset\tstart\tduration\n"
        "n/a\trun-01\tA\t2\t\t\n"
        "sub-01\t2\tA\t0\t100\t\n"
        "02\t2\tA\t0\t100\t3\n"
        "02\t2\tB\t6\t\t\n"
    )
    study = film_clock(Study(people), table)
    assert study["01"].stimuli.tolist() == [
        *(None, "A@0.00", "A@2.00", "A@4.00"),
        *("A@100.00", "A@102.00", "A@104.00", "A@106.00", "A@108.00"),
    ]
    assert study["02"].stimuli.tolist()[4:] == [
        *("A@100.00", "A@102.00", None, "B@0.00", "B@2.00")
    ]
    frame = pd.read_csv(table, sep="\t")
    again = film_clock(Study(people), frame)
    assert again["02"].stimuli.tolist() == study["02"].stimuli.tolist()
    part = film_clock(Study(people), {1: "A", "02": ("A", 8.0)})
    assert part["01"].times.tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 16]


def test_other_repetition_times_are_interpolated():
    study = Study([scanned("01", 40, 1.5), scanned("02", 31, 2.0)])
    with pytest.warns(UserWarning, match=r"01 every 1.5 s, 02 every 2 s.* every 2 s"):
        clocked = film_clock(study, "runs")
    grid = np.arange(0, 58.5 + 1e-9, 2.0)
    times = np.arange(40) * 1.5
    expected = [np.interp(grid, times, voxel) for voxel in course(times).T]
    np.testing.assert_allclose(clocked["01"].data(), np.transpose(expected), atol=1e-12)
    assert clocked["01"].times.tolist() == grid.tolist()
    np.testing.assert_allclose(clocked["01"].onsets, grid)
    np.testing.assert_array_equal(clocked["02"].data(), study["02"].data())
    text = dict(describe_record(clocked.record))["film clock"]
    assert text == "interpolated to one sample every 2 s"


def test_a_shift_is_interpolated_and_noise_of_the_clock_is_not():
    times = np.arange(20) * 2.0
    study = Study([viewer("01", times), viewer("02", times[:-1] + 0.5)])
    with pytest.warns(UserWarning, match="interpolated"):
        shifted = film_clock(study)
    late = shifted["02"]
    assert late.times.tolist() == (times[1:-1]).tolist()
    expected = 0.25 * course(times[:-2] + 0.5) + 0.75 * course(times[1:-1] + 0.5)
    np.testing.assert_allclose(late.data(), expected, atol=1e-12)
    close = film_clock(Study([viewer("01", times), viewer("02", times + 0.03)]))
    assert close["02"].stimuli.tolist() == close["01"].stimuli.tolist()
    np.testing.assert_array_equal(close["02"].data(), course(times + 0.03))


def test_odd_repetition_times_are_no_other_clock():
    onsets = np.arange(500) * 0.735
    parts = {"01": onsets, "02": onsets[200:]}
    people = [Subject(id, course(own), onsets=own) for id, own in parts.items()]
    study = film_clock(Study(people), "runs")
    assert study[1].stimuli.tolist() == study[0].stimuli.tolist()[200:]


def test_nothing_is_interpolated_over_gaps_and_runs():
    times = np.delete(np.arange(20) * 1.0, [7, 8, 9])  # a gap from 6 to 10
    runs = np.where(times < 15, 1, 2)
    gap = viewer("01", times + 0.5, runs=runs, labels=["a"] * 8 + ["b"] * 9)
    study = Study([gap, viewer("02", np.arange(20) * 1.0)])
    with pytest.warns(UserWarning, match="interpolated"):
        clocked = film_clock(study)
    # between 6.5 and 10.5, and between 14.5 and 15.5, nothing is known
    kept = [t for t in range(1, 20) if t not in (7, 8, 9, 10, 15)]
    assert clocked["01"].times.tolist() == kept
    expected = [np.interp(kept, times + 0.5, v) for v in course(times + 0.5).T]
    np.testing.assert_allclose(clocked["01"].data(), np.transpose(expected), atol=1e-12)
    assert set(clocked["01"].runs[clocked["01"].times < 15]) == {1}


def test_people_with_gaps_fit_by_their_moments():
    rng = np.random.default_rng(0)
    times = np.arange(60) * 2.0
    responses = rng.standard_normal((60, 4))
    people = []
    for i in range(4):
        kept = np.delete(np.arange(60), range(10 * i, 10 * i + 15 * (i > 0)))
        samples = responses @ rng.standard_normal((4, 20)) + rng.normal(size=(60, 20))
        runs = np.ones(len(kept), int)
        people.append(Subject(i, samples[kept], runs=runs, onsets=times[kept]))
    study = film_clock(Study(people), "runs")
    model = GDM(3, graph="time").fit(study)
    assert not model.joined_by_row_
    features = zip(model.transform(study), study, strict=True)
    shared = [pd.DataFrame(own, subject.times) for own, subject in features]
    both = shared[0].index.intersection(shared[2].index)
    assert len(both) == 45
    assert np.corrcoef(shared[0].loc[both, 0], shared[2].loc[both, 0])[0, 1] > 0.7


def test_images_have_films_and_stay_lazy(tmp_path):
    files, values = {}, {}
    for id, n, t_r in (("01", 24, 1.5), ("02", 18, 2.0)):
        values[id] = np.random.default_rng(n).normal(size=(2, 2, 1, n))
        files[id] = nib.Nifti1Image(values[id].astype(np.float32), np.eye(4))
        files[id].header.set_zooms((1, 1, 1, t_r))
        files[id].header.set_xyzt_units("mm", "sec")
    plain = Cleaning(high_pass=None)
    with pytest.warns(UserWarning, match="interpolated"):
        study = load_nifti(files, mask=MASK, films={1: "Pieman"}, cleaning=plain)
    assert study["01"].is_lazy
    assert study["01"].stimuli[1] == "Pieman@2.00"
    voxels = values["01"].reshape(4, 24)
    expected = [np.interp(study["01"].times, np.arange(24) * 1.5, v) for v in voxels]
    assert study["01"].data().dtype == np.float32
    np.testing.assert_allclose(study["01"].data(), np.transpose(expected), rtol=1e-5)
    with pytest.raises(InputError, match=r"Give stimuli=.* or films="):
        load_nifti(files, mask=MASK, films="runs", stimuli=[1] * 24)


@pytest.mark.parametrize(
    ("people", "message"),
    [
        (
            [viewer("01", [0, 2, 4, 2]), viewer("02", [0, 2])],
            r"Subject '01' has the moment 'film@2.00' twice, in samples 1 and 3\.",
        ),
        (
            [viewer("01", [0, 2, 4]), viewer("02", [0, 2000, 4000])],
            r"Subject '02': .* film 'film' is 2000\.0; .*not milliseconds",
        ),
        (
            [viewer("01", [0, 2, 4]), viewer("02", [0, 2, 4], film="other")],
            r"No two subjects .*'01' has 'film@0.00' to 'film@4.00'; subject '02'",
        ),
        (
            [Subject("01", np.zeros((2, 2)), stimuli=["a", "b"])],
            "No sample shows a moment of a film",
        ),
    ],
)
def test_wrong_moments_get_one_sentence(people, message):
    with pytest.raises(StudyError, match=message):
        film_clock(Study(people))


@pytest.mark.parametrize(
    ("films", "message"),
    [
        ({3: "A"}, "films: no subject has run 3; there are 1"),
        (pd.DataFrame({"run": [1]}), "films: row 1 lacks a run or a film"),
        (
            pd.DataFrame({"run": [1], "film": ["A"], "start": ["soon"]}),
            r"row 1 has onset 0.0, start 'soon', duration inf\. Give seconds",
        ),
    ],
)
def test_wrong_tables_get_one_sentence(films, message):
    with pytest.raises(InputError, match=message):
        film_clock(Study([scanned("01", 4, 2.0)]), films)


def test_times_must_be_known():
    study = Study([Subject("01", np.zeros((3, 2)), runs=[1, 1, 1])])
    with pytest.raises(StudyError, match=r"times of its samples are not known.* t_r"):
        film_clock(study, "runs")
    with pytest.raises(TypeError, match="films must be"):
        film_clock(study, 3)


def test_a_simulated_film_has_gaps_and_is_read_without_events(tmp_path):
    options = {"n_subjects": 3, "n_voxels": 60, "n_runs": 2, "design": "movie"}
    options |= {"categories": 3, "settings": SimulationSettings(keep_rest=True)}
    whole = simulate_study(**options)
    study = simulate_study(**options, missing_parts=2)
    counts = [subject.n_samples for subject in study]
    full = whole[0].n_samples
    assert counts == [full, full - 2 * (full // 6), full - 2 * (full // 6)]
    folder = study.to_bids(tmp_path / "out", raw=False, events=False)
    assert not list(folder.rglob("*events.tsv"))
    chosen = {"confounds": None, "scrub": 0.5, "cleaning": Cleaning(high_pass=None)}
    loaded = load_bids(folder, label=None, films={1: "A", 2: ("A", 200.0)}, **chosen)
    for own, simulated in zip(loaded, study, strict=True):
        assert own.stimuli[0] == f"A@{own.onsets[0]:.2f}"
        expected = simulated.onsets + 200.0 * (simulated.runs == 2)
        np.testing.assert_array_equal(own.times, expected)
        np.testing.assert_allclose(own.data(), simulated.data(), rtol=1e-6)
        lost = np.diff(own.times[own.runs == 1]).max()
        assert (lost > 10) == (own.id != "01")


def test_a_column_of_a_table_holds_the_moments(tmp_path):
    nib.save(MASK, tmp_path / "mask.nii.gz")
    rows = ["subject\tstimulus"]
    for id, shift in (("01", 0), ("02", 4)):
        values = np.random.default_rng(shift).normal(size=(2, 2, 1, 6))
        nib.save(nib.Nifti1Image(values, np.eye(4)), tmp_path / f"sub-{id}.nii.gz")
        rows += [f"sub-{id}\tfilm@{2 * t + shift}" for t in range(6)]
    (tmp_path / "ids.tsv").write_text("\n".join(rows) + "\n")
    study = load_study(
        sorted(tmp_path.glob("sub-*")),
        labels=tmp_path / "ids.tsv",
        mask=tmp_path / "mask.nii.gz",
    )
    assert study["02"].times.tolist() == [4, 6, 8, 10, 12, 14]
    assert study["02"].labels is None
    kept = match_samples(study, [s.stimuli for s in study], "intersect").kept
    assert [rows.tolist() for rows in kept] == [[2, 3, 4, 5], [0, 1, 2, 3]]


@pytest.mark.parametrize("row", [{"start": -10}, {"duration": 0}])
def test_a_film_starts_at_zero_or_later_and_lasts(rng, row):
    X = rng.normal(size=(5, 3))
    study = Study([Subject(id, X, onsets=2.0 * np.arange(5)) for id in "ab"])
    table = pd.DataFrame([{"run": 1, "film": "F"} | row])
    with pytest.raises(InputError, match=r"row 1 has onset 0\.0, start"):
        film_clock(study, table)
