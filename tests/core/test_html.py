"""What notebooks show: true numbers, everything escaped, one-line texts."""

import re

import numpy as np
import pytest

from brainweave import (
    GDM,
    Study,
    Subject,
    alignment_check,
    between_subject_classification,
    simulate_study,
)


@pytest.fixture(scope="module")
def study():
    return simulate_study(n_subjects=4, categories=3, n_voxels=40, random_state=0)


@pytest.fixture(scope="module")
def gdm(study):
    return GDM(2).fit(study)


def _rows(html):
    rows = re.findall(r"<tr.*?>(.*?)</tr>", html, re.DOTALL)
    return [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in rows]


def test_a_study_shows_its_subjects_and_what_they_lack():
    X = np.zeros((3, 5))
    full = Subject("01", X, labels=["a", "b", "b"], runs=[1, 1, 2])
    part = Subject("02", X, labels=["a", "a", None], runs=[1, 1, 1])
    html = Study([full, part])._repr_html_()
    head, first, second = _rows(html)
    assert head[:5] == ["subject", "samples", "voxels", "runs", "categories"]
    assert first[:5] == ["01", "3", "5", "2", "2"]
    assert second[:5] == ["02", "3", "5", "1", "1"]
    assert "6 samples, 1 without a label" in html


def test_names_are_escaped():
    bad = "<script>alert(1)</script>"
    subject = Subject(bad, np.zeros((2, 2)), labels=[bad, "b"])
    html = Study([subject], name=bad)._repr_html_()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 3  # name, category, id


def test_a_long_table_is_cut():
    study = Study(Subject(f"{i}", np.zeros((2, 2))) for i in range(99))
    assert len(_rows(study._repr_html_())) < 30


def test_a_result_shows_its_numbers_in_a_line_and_a_table(study):
    result = between_subject_classification(
        GDM(2), study, n_permutations=3, random_state=0
    )
    assert repr(result) == f"ClassificationResult({result})"
    assert "\n" not in repr(result)
    rows = _rows(result._repr_html_())
    facts = dict(zip(*rows[:2], strict=True))
    assert facts["mean"] == f"{result.mean:.3f}"
    assert facts["chance"] == f"{result.chance:.3f}"
    assert facts["p"].startswith(f"{result.p_value:.3g} ")
    assert [float(row[3]) for row in rows[3:]] == pytest.approx(result.scores, abs=5e-4)


def test_a_check_shows_its_verdict_and_every_feature(gdm):
    check = alignment_check(gdm)
    assert repr(check) == f"AlignmentCheck({check.verdict})"
    html = check._repr_html_()
    assert check.verdict in html
    assert [float(row[2]) for row in _rows(html)[1:]] == pytest.approx(check.p, rel=0.1)


def test_the_diagram_tells_what_was_learned(gdm):
    bundle = gdm._repr_mimebundle_()
    assert bundle["text/plain"] == "GDM(n_components=2)"
    assert "4 subjects, 40 voxels, 2 shared features" in bundle["text/html"]
    assert "subjects," not in GDM()._repr_mimebundle_()["text/html"]


def test_a_map_shows_its_size(gdm):
    assert repr(gdm.maps_[0]) == "BasisMap(40 voxels to 2 features)"
    assert _rows(gdm.maps_[0]._repr_html_())[1][:3] == ["40", "2", "linear"]
