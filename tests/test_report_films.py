"""The report of a film: who saw what, and what people share."""

import base64
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave._core.exceptions import InputError
from brainweave.evaluation.metrics import zscored
from brainweave.plotting import plot_accuracy, plot_coverage, plot_time_courses
from brainweave.plotting.films import read_timeline
from brainweave.report import write_report
from brainweave.report.inputs import gather
from brainweave.report.sections import film_section
from brainweave.study import Study, Subject
from evaluation_studies import score_matching

SEEN = [range(80), range(80), range(80), range(60), range(20, 80)]


def film(seen=SEEN, signal=1.0, names=("Pieman",), seed=0):
    """Films of equal length that people saw in part."""
    rng = np.random.default_rng(seed)
    n = 80 // len(names)
    story = rng.normal(size=(80, 3))
    ids = [f"{names[t // n]}@{1.5 * (t % n):.2f}" for t in range(80)]
    return Study(
        [
            Subject(
                f"0{i + 1}",
                signal * story[rows] @ rng.normal(size=(3, 25))
                + 0.3 * rng.normal(size=(len(rows), 25)),
                stimuli=[ids[t] for t in rows],
                runs=[1 + t // 40 for t in rows],
            )
            for i, rows in enumerate(seen)
        ],
        "story",
    )


def drawn_means(html):
    """The mean correlation of each feature, as written beside its bar."""
    figure = html[html.index('id="correlations"') :]
    svg = re.search(r"svg\+xml;base64,([^\"]+)", figure)[1]
    text = base64.b64decode(svg).decode()
    return [float(mean) for mean in re.findall(r">(-?\d\.\d{3}) ±", text)]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report of a film with gaps, and its model."""
    study = film()
    model = bw.GDM(3, graph="time", shrinkage=0.1).fit(study)
    result = score_matching(bw.SRM(3, random_state=0), study, window=5, leave_out=2)
    path = tmp_path_factory.mktemp("page") / "film.html"
    write_report(path, study=study, model=model, results={"SRM": result})
    return path.read_text(encoding="utf-8"), model, result


def test_the_chapters_are_those_of_a_film(page):
    html, _, _ = page
    for title in (
        "Who saw what",
        "Shared time courses",
        "Inter-subject correlation",
    ):
        assert f"<h3>{title}</h3>" in html
    shown = re.sub(r"<(style|script)>.*?</\1>", "", html, flags=re.S)
    for word in ("classif", "unlabelled", "Each dot is a sample", "in one category"):
        assert word not in shown


def test_the_verdict_is_in_words_of_films(page):
    html, _, result = page
    found = f"{100 * result.mean:.1f}".removesuffix(".0")
    assert f"With SRM, {found}\u00a0% of the film&#39;s segments are found" in html
    assert "by matching segments of time of left-out subjects" in html
    assert "The first half of the film aligned and the rest was scored" in html


def test_who_saw_what_is_what_the_ids_say(page):
    html, _, _ = page
    axes = plot_coverage(film())
    seen = np.asarray(axes.images[0].get_array())[:, :, 3] > 0
    assert seen.tolist() == [[t in own for t in range(80)] for own in SEEN]
    assert read_timeline(film()).name(79) == "1:58"
    assert "Parts of the film that each subject saw" in html
    assert "All subjects saw 40 of 80 time steps (50\u00a0%)" in html


def test_correlations_are_those_of_samples_that_did_not_align(page):
    html, model, _ = page
    study = film()
    held = bw.alignment_check(model, study).features
    line = read_timeline(study)
    want = bw.inter_subject_correlation(
        line.standardized(held), [p.tolist() for p in line.places]
    )
    assert_allclose(drawn_means(html), want.mean(axis=0), atol=5.1e-4)
    assert want.mean() > 0.5


def test_a_feature_that_does_not_vary_is_no_zero_of_the_mean(rng):
    course = rng.normal(size=(40, 2))
    shared = [course + rng.normal(size=course.shape) for _ in range(4)]
    shared[3][:, 0] = 1.0
    study = Study([Subject(f"{i}", x) for i, x in enumerate(shared)])
    model = bw.NoAlignment().fit(study)
    inputs = gather(study=study, model=model, results=None, config=None)
    inputs.film, inputs.drawn, inputs.shared = read_timeline(study), "not align", shared
    last = film_section(inputs)["elements"][-1]
    first, second = drawn_means(f'id="{last["id"]}"{last["figure"]}')
    found = bw.inter_subject_correlation([zscored(x) for x in shared])
    assert np.isnan(found[3, 0])
    assert_allclose(first, found[:3, 0].mean(), atol=5.1e-4)
    assert_allclose(second, found[:, 1].mean(), atol=5.1e-4)


def test_noise_shares_no_time_courses(tmp_path):
    """Features of both halves are standardised, so that their offsets share nothing."""
    study = film([range(80)] * 5, signal=0.0)
    model = bw.SRM(3, random_state=0).fit(study)
    html = write_report(tmp_path / "r.html", study=study, model=model).read_text()
    assert np.abs(np.mean(drawn_means(html))) < 0.2


def test_features_that_may_have_aligned_show_no_likeness(tmp_path):
    study = film([range(80)] * 4)
    model = bw.NoAlignment().fit(study)
    html = write_report(tmp_path / "r.html", study=study, model=model).read_text()
    assert "Shared time courses" in html
    assert "The model may have been fitted on these samples" in html
    assert "For each shared feature, the correlation" not in html


def test_long_and_many_films_keep_their_axes_readable():
    for study in (
        film(),
        film(names=("one", "two")),
        film([range(80)] * 2, names=tuple("abcdefghijklmnop")),
    ):
        ax = plot_coverage(study)
        names = [label.get_text() for label in ax.get_xticklabels()]
        assert 1 <= len(names) <= 9
        assert names[0] == "0:00"
    assert plot_coverage(film(names=("one", "two"))).texts[1].get_text() == "two"


def test_rows_are_time_where_no_ids_are_known():
    X = [Subject(i, np.eye(30, 4)) for i in "ab"]
    ax = plot_coverage(Study(X))
    assert ax.get_xlabel() == "sample"
    labelled = Study([Subject(i, np.eye(2, 4), labels=["a", "b"]) for i in "ab"])
    with pytest.raises(InputError, match="nothing tells who saw what when"):
        plot_coverage(labelled)


def test_time_courses_show_the_mean_and_everyone():
    study = film()
    ax = plot_time_courses([s.data() for s in study], study, components=(0, 1))
    curves = [line for line in ax.get_lines() if len(line.get_xdata()) == 80]
    assert len(curves) == 2 * (len(study) + 1)
    assert np.isnan(curves[4].get_ydata()[:20]).all()  # who came late


def test_scores_that_are_no_shares_are_written_as_numbers(tmp_path):
    study = film([range(80)] * 4)
    isc = bw.score_alignment(bw.SRM(2, random_state=0), study, measure="isc")
    ax = plot_accuracy(isc)
    assert ax.get_xlabel().startswith("inter-subject correlation per subject")
    assert "%" not in ax.texts[0].get_text()
    html = write_report(tmp_path / "r.html", study=study, results=isc).read_text()
    assert f"features of left-out subjects correlate {isc.mean:.3f}" in html
    mixed = [isc, score_matching(bw.NoAlignment(), study, window=5)]
    with pytest.raises(InputError, match="different measures"):
        write_report(tmp_path / "r.html", results=mixed)
