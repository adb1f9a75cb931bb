"""The report: complete, escaped, and written whole."""

import base64
import os
import re
import warnings
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape
from numpy.testing import assert_allclose

import brainweave
from brainweave import GDM, NoAlignment, PaperGDM, between_subject_classification
from brainweave._core.exceptions import InputError
from brainweave.plotting import plot_sequences
from brainweave.plotting.style import clean_text
from brainweave.report import write_report
from brainweave.report.inputs import gather
from brainweave.report.sections import element, picture
from brainweave.study import Study, Subject
from evaluation_studies import signal_or_noise

ATTACK = "<script>alert(1)</script>"
AWKWARD = [
    "</script><img src=x onerror=alert(2)>",
    "a&b\"'c",
    "$\\frac$",
    "_日本",
    ATTACK,
]
VOID = {"meta", "link", "img", "br", "hr", "input"}
LOADING = {"src", "href", "action", "data", "poster", "srcset", "formaction"}


@dataclass
class FakeResult:
    """Looks like a ClassificationResult."""

    scores: Any
    method: str = "GDM"
    protocol: str = "joint"
    chance: float = 0.25
    p_value: float | None = None
    categories: list = field(default_factory=lambda: list("abcd"))
    confusion: Any = field(default_factory=lambda: 5 * np.eye(4) + 1)
    folds: list = field(default_factory=list)
    seconds: dict = field(default_factory=lambda: {"align": 0.5, "classify": 1.25})
    balanced_accuracy: float = 0.5
    chance_is: str = "a guess"
    study: dict = field(default_factory=dict)
    design: dict = field(default_factory=dict)


class Page(HTMLParser):
    """Every element with its attributes, and the text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.inside: list[str] = []
        self.texts: list[str] = []
        self.unclosed: list[str] = []
        self.figure = ""  # id of the one that begins last
        self.tables: dict[str, list[list[str]]] = {}  # by figure: rows of cells
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.inside.append(tag)
        if tag == "figure":
            self.figure = dict(attrs)["id"]
        elif tag == "tr":
            self.tables.setdefault(self.figure, []).append([])
        elif tag in ("th", "td"):
            self.tables[self.figure][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()
        else:
            self.unclosed.append(tag)

    def handle_data(self, data):
        if "style" not in self.inside:
            self.texts.append(data)
        if self.inside and self.inside[-1] in ("th", "td"):
            self.tables[self.figure][-1][-1] += data

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    def drawings(self):
        """The figures that are drawings of lines and text, by what they show."""
        start = "data:image/svg+xml;base64,"
        return {
            a["alt"]: base64.b64decode(a["src"].removeprefix(start)).decode()
            for a in self.all("img")
            if a["src"].startswith(start)
        }

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def make_study(categories, *, n_subjects=3, repeats=6, n_voxels=30, seed=0):
    rng = np.random.default_rng(seed)
    centroids = rng.normal(size=(len(categories), 5))
    subjects = []
    for i in range(n_subjects):
        codes = rng.permutation(np.repeat(np.arange(len(categories)), repeats))
        X = centroids[codes] @ rng.normal(size=(5, n_voxels + i))
        X += 0.5 * rng.normal(size=X.shape)
        labels = np.array(categories, dtype=object)[codes]
        runs = np.repeat([1, 2], [len(codes) // 2, len(codes) - len(codes) // 2])
        subjects.append(Subject(f"0{i + 1}", X, labels=labels, runs=runs))
    return Study(subjects, "a study")


@pytest.fixture(scope="module")
def study():
    return make_study(list("abcd"))


@pytest.fixture(scope="module")
def model(study):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PaperGDM(n_components=5, energy=0.9).fit(study)


@pytest.fixture(scope="module")
def results():
    folds = [{"test_subjects": ["01"], "nu": 0.5}, {"test_subjects": ["02"], "nu": 0.5}]
    return [
        FakeResult(np.array([0.75, 0.5]), p_value=0.01, folds=folds),
        FakeResult(np.array([0.25, 0.3]), method="NoAlignment", p_value=0.4),
        FakeResult(np.array([0.5, 0.5]), protocol="held-out", p_value=0.02),
    ]


@pytest.fixture(scope="module")
def html(tmp_path_factory, study, model, results):
    path = tmp_path_factory.mktemp("report") / "report.html"
    written = write_report(
        path,
        study=study,
        model=model,
        results=results,
        config={"model": {"energy": 0.9, "graph": "labels"}, "seed": 7},
        title="A title",
        warnings=["it rained"],
    )
    assert written == path
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_the_page_is_well_formed_and_ids_are_unique(page):
    assert page.unclosed == []
    assert page.inside == []
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = [a["href"][1:] for a in page.all("a") if a["href"].startswith("#")]
    assert targets
    assert set(targets) <= set(ids)


def test_nothing_is_loaded_from_elsewhere(html, page):
    for _, attrs in page.elements:
        for name in LOADING & set(attrs):
            assert attrs[name].startswith(("#", "data:"))
    assert "@import" not in html
    assert re.findall(r"url\((?!#)", html) == []


def test_the_page_has_no_script_and_allows_none(page):
    (policy,) = [a["content"] for a in page.all("meta") if "http-equiv" in a]
    assert policy.startswith("default-src 'none'")
    assert "script-src" not in policy
    assert page.all("script") == []


def test_the_report_says_what_was_done(page):
    text = page.text
    assert "3 subjects (24 samples and 30–32 voxels each) in 4 categories" in text
    assert "graph-based decoding model (GDM; Li et al., 2020)" in text
    assert "hold 90 % of the summed singular values" in text
    assert "mean accuracy over 2 folds was 62.5 % with GDM" in text
    assert "27.5 % without alignment" in text
    assert "Li, W., Liu, M., Chen, F., & Zhang, D. (2020)." in text
    assert text.count("Li, W., Liu, M.") == 1


def test_headlines_compare_with_chance_and_with_no_alignment(page):
    assert "62.5 % accuracy, joint" in page.text
    assert "GDM; chance 25 % (a guess), without alignment 27.5 %, p = 0.01" in page.text


def test_the_verdict_joins_accuracy_and_agreement(page):
    assert "Alignment worked With GDM, 50 % of the samples of left-out" in page.text
    assert "correctly (held-out); chance" in page.text
    assert "above chance (p = 0.02" in page.text
    assert "On held-out samples, subjects agree in" in page.text


@pytest.mark.parametrize(
    ("p", "signal", "title"),
    [
        (0.01, True, "Alignment worked"),
        (0.5, True, "Unclear whether alignment worked"),
        (0.5, False, "No evidence of a shared space"),
        (None, False, "No evidence of a shared space"),
        (None, True, "Alignment worked"),
    ],
)
def test_the_verdict_claims_only_what_was_tested(model, p, signal, title):
    from brainweave.aligners.check.alignment_check import AlignmentCheck
    from brainweave.plotting.results import Scored
    from brainweave.report.inputs import Inputs
    from brainweave.report.write import give_verdict

    check = AlignmentCheck(
        agreement_cv=np.array([0.5]), p=np.array([0.01 if signal else 0.8])
    )
    result = FakeResult(np.array([0.9]), p_value=p)
    scored = [Scored("x", result)]
    inputs = Inputs(None, model, scored, {}, method="GDM", check=check)
    verdict = give_verdict(inputs)
    assert verdict is not None
    assert verdict.title == title


def scored_subjects(n=5, **methods):
    """Return held-out results of n subjects, by method: first, and step."""
    folds = [{"test_subjects": [f"0{i}"]} for i in range(n)]
    return [
        FakeResult(
            np.round(mean + step * np.arange(n), 4), name, "held-out", folds=folds
        )
        for name, (mean, step) in methods.items()
    ]


def test_a_p_that_cannot_be_smaller_is_said_to_be_so(tmp_path):
    verdict = text_of(tmp_path, results=scored_subjects(GDM=(0.6, 0.01))).text
    smallest = "above chance (p = 0.031, sign flips over 5 subjects: the smallest p"
    assert smallest in verdict
    four = text_of(tmp_path, results=scored_subjects(4, GDM=(0.6, 0.01))).text
    assert "Whether alignment worked cannot be tested" in four
    assert "Too few subjects, or permutations, to tell whether" in four
    results = scored_subjects(GDM=(0.6, 0.01), SRM=(0.5, 0.01))
    chosen = text_of(tmp_path, results=results).text
    assert "p = 0.031, sign flips over 5 subjects, corrected for the choice" in chosen


def test_alignment_that_does_not_help_is_not_said_to_work(tmp_path):
    results = scored_subjects(7, GDM=(0.6, 0.01), NoAlignment=(0.6, 0.011))
    page = text_of(tmp_path, results=results)
    assert "Unclear whether alignment worked" in page.text
    assert "percentage points lower than without alignment" in page.text
    helps = scored_subjects(7, GDM=(0.6, 0.01), NoAlignment=(0.3, 0.01))
    page = text_of(tmp_path, results=helps)
    assert "Alignment worked With GDM" in page.text
    gain = "accuracy is 30.0 percentage points higher than without alignment (p = 0.016"
    assert gain in page.text


def test_a_method_has_one_name_in_all_parts_of_a_report(tmp_path):
    one, other = scored_subjects(GDM=(0.6, 0.01), NoAlignment=(0.3, 0.01))
    named = {"gdm (held-out)": one, "none (held-out)": other}
    page = text_of(tmp_path, results=named)
    assert "Confusion: GDM, held-out" in page.text
    assert page.tables["by-subject"][0][1:] == [
        "GDM, held-out",
        "without alignment, held-out",
    ]
    assert "none (held-out)" not in page.text


def test_chance_is_defined_where_it_is_shown(tmp_path):
    X = [np.random.default_rng(i).normal(size=(24, 9)) for i in range(3)]
    result = brainweave.between_subject_classification(
        GDM(1), X, [list("aabbba") * 4] * 3, protocol="held-out", n_permutations=9
    )
    assert result.chance == 0.5
    page = text_of(tmp_path, results=result)
    assert "GDM; chance 50 % (the most frequent category)" in page.text
    assert "chance, the most frequent category, is 50 %" in page.text
    meant = "the share of the most frequent category among the tested samples"
    assert page.text.count(meant) == 2  # at the bars, and in the methods
    assert "chance level is 1 divided by the number of categories" in page.text
    assert "by permuting each subject's labels 9 times, in blocks" in page.text
    cited = [page.text.index(name) for name in ("Schölkopf, B.", "Liu, Y.")]
    assert cited == sorted(cited)  # references come in the order of their use
    assert "smallest p possible" in page.text


def test_accuracy_without_a_test_decides_nothing(tmp_path):
    result = FakeResult(np.array([0.99]))
    page = Page(write_report(tmp_path / "r.html", results=result).read_text("utf-8"))
    assert "Whether alignment worked cannot be tested" in page.text


def test_matched_samples_are_counted_as_they_were(tmp_path, study):
    result = FakeResult(np.array([0.5]))
    result.study = {"subjects": study.ids, "fingerprint": "of the matched study"}
    result.design = {"match": "truncate"}
    path = write_report(tmp_path / "r.html", study=study, results=result)
    text = Page(path.read_text("utf-8")).text
    assert "GDM was scored on matched samples." in text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"study": {"fingerprint": "f" * 64}}, "another study than the one given"),
        ({"folds": [{"test_subjects": ["09"]}]}, "another study than the one given"),
    ],
)
def test_results_of_another_study_are_refused(tmp_path, study, change, text):
    result = FakeResult(np.array([0.5]))
    for name, value in change.items():
        setattr(result, name, value)
    with pytest.raises(InputError, match=text):
        write_report(tmp_path / "r.html", study=study, results=result)
    assert os.listdir(tmp_path) == []


def test_results_of_two_studies_are_refused(tmp_path):
    one, other = FakeResult(np.array([0.5])), FakeResult(np.array([0.5]), method="SRM")
    one.study, other.study = {"fingerprint": "a"}, {"fingerprint": "b"}
    with pytest.raises(InputError, match="are of different studies"):
        write_report(tmp_path / "r.html", results=[one, other])


def test_warnings_given_and_found_are_shown(page):
    assert "it rained" in page.text
    assert (
        "The shared space is not unique: the graph determines 3 of 5 shared features"
        in page.text
    )


def test_configuration_versions_and_times_are_listed(page):
    for text in ("model.energy 0.9", "model.graph labels", "seed 7", "numpy"):
        assert text in page.text


def test_tables_list_methods_and_have_no_file_beside_them(page):
    header, *rows = page.tables["accuracy"]
    assert header[:3] == ["method", "protocol", "accuracy"]
    assert [row[0] for row in rows] == ["GDM", "GDM", "without alignment"]
    assert [row[2] for row in rows] == ["50\u00a0%", "62.5\u00a0%", "27.5\u00a0%"]
    assert [a for a in page.all("a") if "download" in a] == []
    confusion = page.drawings()["Confusion matrix of GDM, held-out"]
    assert confusion.count(">67</text>") == 4  # per cent: 6 of 9


def test_the_shared_space_holds_every_sample(page, study, model):
    inputs = gather(study=study, model=model, results=None, config=None)
    held_out = brainweave.alignment_check(model, study).features
    assert held_out is not None
    assert inputs.shared is not None
    assert_allclose(np.concatenate(inputs.shared), np.concatenate(held_out))
    for how in ("category", "subject"):
        drawn = page.drawings()[
            f"Samples of all subjects in the shared space, by {how}"
        ]
        # a dot per sample, and one per name of the legend
        n_names = 4 if how == "category" else 3
        collections = drawn[drawn.index('id="PathCollection_1"') :].count("<use ")
        assert collections >= sum(s.n_samples for s in study) + n_names


def test_subjects_who_saw_different_orders_are_said_to(page):
    assert "3 subjects saw 3 different sequences." in page.text


def test_text_from_data_stays_text(tmp_path):
    study = make_study(AWKWARD, repeats=3)
    study = Study(
        [
            Subject(f"{ATTACK}{i}", s.samples, labels=s.labels)
            for i, s in enumerate(study)
        ],
        ATTACK,
    )
    result = FakeResult(
        np.array([0.5]),
        method=ATTACK,
        protocol=ATTACK,
        categories=AWKWARD,
        confusion=np.eye(5),
        seconds={ATTACK: 1.0},
        folds=[{"test_subjects": [f"{ATTACK}0"]}],
    )
    path = write_report(
        tmp_path / "r.html",
        study=study,
        model=GDM(n_components=4).fit(study),
        results=result,
        config={ATTACK: {ATTACK: [ATTACK]}},
        title=ATTACK,
        warnings=[ATTACK, warnings.WarningMessage(ATTACK, UserWarning, "f", 1)],
    )
    html = path.read_text(encoding="utf-8")
    page = Page(html)
    assert page.unclosed == []
    assert page.all("script") == []
    assert ATTACK not in html
    assert [a for a in page.all("img") if a.get("src") == "x"] == []
    assert [a for _, a in page.elements if any(n.startswith("on") for n in a)] == []
    assert page.text.count(ATTACK) >= 10
    texts = [
        "".join(node.itertext()).strip()
        for svg in page.drawings().values()
        for node in ElementTree.fromstring(svg).iter()
    ]
    assert set(map(clean_text, AWKWARD)) <= set(texts)
    assert not any("<script" in svg for svg in page.drawings().values())


def test_control_characters_and_lone_surrogates_are_survived(tmp_path):
    study = make_study(["a\x01b", "c\ud800d", "e\nf"])
    path = write_report(
        tmp_path / "r.html",
        study=study,
        model=GDM(n_components=2).fit(study),
        title="t\x00\ud800",
    )
    assert Page(path.read_text(encoding="utf-8")).unclosed == []


def test_a_study_alone_makes_a_report(tmp_path, study):
    page = Page(write_report(tmp_path / "r.html", study=study).read_text("utf-8"))
    figures = {a["id"] for a in page.all("figure")}
    assert figures == {"sequences", "subjects", "versions"}


def test_a_model_alone_makes_a_report(tmp_path, study):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GDM(n_components=3).fit(
            [s.samples for s in study], [s.labels for s in study]
        )
    page = Page(write_report(tmp_path / "r.html", model=model).read_text("utf-8"))
    figures = {a["id"] for a in page.all("figure")}
    assert {"components", "configuration"} <= figures


@pytest.mark.parametrize(
    ("aligner", "text"),
    [
        (
            brainweave.DetSRM(n_components=3),
            "deterministic shared response model (Chen",
        ),
        (brainweave.Hyperalignment(), "were aligned with hyperalignment (Haxby et al."),
        (brainweave.NoAlignment(), "compared voxel by voxel, without functional align"),
    ],
)
def test_other_methods_are_named_and_cited(tmp_path, aligner, text):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(12, 15)) for _ in range(2)]
    path = write_report(tmp_path / "r.html", model=aligner.fit(X))
    assert text in Page(path.read_text("utf-8")).text


def test_a_tuned_model_is_described_by_what_it_chose(tmp_path, study, model):
    class Tuned:
        best_estimator_ = model
        best_params_ = {"energy": 0.9}

        def get_params(self, deep=True):
            return {"energy": [0.5, 0.9]}

    path = write_report(tmp_path / "r.html", study=study, model=Tuned())
    page = Page(path.read_text("utf-8"))
    assert "chosen.energy 0.9" in page.text
    assert len(page.tables["components"]) == 6


def test_a_model_file_comes_back_with_its_report(tmp_path, study, model):
    brainweave.save(model, tmp_path / "m.safetensors")
    loaded = brainweave.load(tmp_path / "m.safetensors")
    page = Page(write_report(tmp_path / "r.html", model=loaded).read_text("utf-8"))
    figures = {a["id"] for a in page.all("figure")}
    assert {"components", "configuration"} <= figures


def test_results_alone_make_a_report(tmp_path, results):
    named = {"mine": results[0], "theirs": results[1]}
    page = Page(write_report(tmp_path / "r.html", results=named).read_text("utf-8"))
    header, one, other = page.tables["accuracy"]
    assert (header[0], one[0], other[0]) == ("method", "GDM", "without alignment")


def test_unlabelled_subjects_make_a_report(tmp_path):
    rng = np.random.default_rng(0)
    study = Study(Subject(str(i), rng.normal(size=(10, 12))) for i in range(2))
    model = GDM(n_components=3, graph="time").fit([s.samples for s in study])
    path = write_report(tmp_path / "r.html", study=study, model=model)
    page = Page(path.read_text("utf-8"))
    assert "3 of 3 shared features over the film" in page.text  # rows are time


def test_methods_are_compared_within_each_protocol(tmp_path):
    folds = [{"test_subjects": [f"{i:02}"]} for i in range(6)]
    scores = {"GDM": 0.8, "SRM": 0.6}
    results = [
        FakeResult(
            np.full(6, score) + 0.01 * np.arange(6), method, protocol, folds=folds
        )
        for method, score in scores.items()
        for protocol in ("joint", "held-out")
    ]
    page = Page(write_report(tmp_path / "r.html", results=results).read_text("utf-8"))
    header, *rows = page.tables["between-methods"]
    assert header[:3] == ["methods", "protocol", "difference"]
    assert header[3:] == ["p", "smallest p possible", "subjects"]
    assert [row[:3] for row in rows] == [
        ["GDM vs. SRM", "held-out", "20\u00a0%"],
        ["GDM vs. SRM", "joint", "20\u00a0%"],
    ]


def brains(n_subjects=2):
    """Subjects whose voxels are known, and a model of them."""
    import nibabel as nib

    from brainweave.study.spaces import VolumeSpace

    space = VolumeSpace(
        nib.Nifti1Image(np.ones((3, 4, 3), np.uint8), np.diag([9.0, 9, 9, 1]))
    )
    study = make_study(list("abc"), n_subjects=n_subjects, n_voxels=36)
    subjects = [
        Subject(s.id, s.data()[:, :36], labels=s.labels, space=space) for s in study
    ]
    return Study(subjects), GDM(n_components=2).fit(Study(subjects))


def test_maps_are_pictures_with_one_scale(tmp_path, monkeypatch):
    from brainweave import plotting

    limits, draw = [], plotting.plot_brain

    def record(*args, **options):
        limits.append(options["limit"])
        return draw(*args, **options)

    monkeypatch.setattr(plotting, "plot_brain", record)
    study, model = brains()
    page = text_of(tmp_path, study=study, model=model)
    maps = [a for a in page.all("img") if a["alt"].startswith("Shared feature ")]
    assert len(maps) == 4
    assert all(a["src"].startswith("data:image/png;base64,") for a in maps)
    patterns = np.concatenate([m.patterns[:2] for m in model.maps_])
    assert_allclose(limits, np.abs(patterns).max())
    assert "(SD) of the voxel per SD of the feature" in page.text
    assert "Haufe et al., 2014" in page.text


def test_maps_say_how_many_they_show_of_how_many(tmp_path):
    study, model = brains()
    shown = text_of(tmp_path, study=study, model=model).text
    assert "neither thresholded nor tested" in shown
    assert "Shown: 2 of 2 subjects, 2 of 2 shared features." in shown


def test_features_and_samples_are_counted_from_0_as_in_python(tmp_path):
    study, model = brains()
    page = text_of(tmp_path, study=study, model=model)
    assert [row[0] for row in page.tables["components"]] == ["feature", "0", "1"]
    assert list(model.component_summary().index) == [0, 1]
    drawn = page.drawings()["Samples of all subjects in the shared space, by subject"]
    assert [f">shared feature {k}<" in drawn for k in range(3)] == [True, True, False]
    titles = [f"Shared feature {k}, subject 0{i}" for k in (0, 1) for i in (1, 2)]
    assert all(title in page.text for title in titles)


@pytest.mark.parametrize("energy", [None, 0.9])
def test_a_better_feature_has_the_larger_number_in_every_display(tmp_path, energy):
    import brainweave as bw

    study = make_study(list("abcd"))
    model = PaperGDM(3, energy=energy).fit(study)
    table = model.component_summary()
    assert (np.diff(table["graph_fit"]) < 1e-9).all()  # some are equal
    page = text_of(tmp_path, study=study, model=model)
    assert all(f"{fit:.4g}" in page.text for fit in table["graph_fit"])
    loaded = bw.load(bw.save(model, tmp_path / "m.safetensors"))
    assert_allclose(loaded.component_summary()["graph_fit"], table["graph_fit"])


def test_a_space_that_cannot_be_drawn_is_noted(tmp_path):
    from brainweave.study.surface import SurfaceSpace

    study = make_study(list("abc"), n_subjects=2, n_voxels=30)
    subjects = [
        Subject(
            s.id,
            s.data(),
            labels=s.labels,
            space=SurfaceSpace({"CortexLeft": s.n_voxels}),
        )
        for s in study
    ]
    model = GDM(n_components=2).fit(Study(subjects))
    path = write_report(tmp_path / "r.html", study=Study(subjects), model=model)
    assert "There is no picture for surfaces of" in path.read_text("utf-8")


def test_a_usual_study_stays_small(tmp_path):
    study = make_study([f"category {i}" for i in range(8)], n_subjects=8, repeats=38)
    model = GDM(n_components=7).fit(study)
    path = write_report(tmp_path / "r.html", study=study, model=model)
    assert path.stat().st_size < 1_200_000


def test_many_samples_are_drawn_as_an_image(tmp_path, study, model, monkeypatch):
    monkeypatch.setattr("brainweave.plotting.model.MANY", 20)
    path = write_report(tmp_path / "r.html", study=study, model=model)
    page = Page(path.read_text("utf-8"))
    space = [svg for alt, svg in page.drawings().items() if "shared space" in alt]
    assert len(space) == 2
    assert all("data:image/png;base64," in svg for svg in space)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path, study, monkeypatch
):
    path = tmp_path / "r.html"
    path.write_text("old")

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_report(path, study=study)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["r.html"]


def test_folders_are_made_and_files_are_readable(tmp_path, study):
    path = write_report(tmp_path / "a" / "b" / "r.html", study=study)
    assert path.stat().st_mode & 0o400


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({}, InputError, "needs a study, a model or results"),
        ({"model": GDM()}, ValueError, "GDM instance is not fitted"),
        ({"results": 3}, InputError, "has no scores"),
        ({"results": ["x"]}, InputError, "has no scores"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, given, error, text):
    with pytest.raises(error, match=text):
        write_report(tmp_path / "r.html", **given)
    assert os.listdir(tmp_path) == []


def test_a_model_of_another_study_is_refused(tmp_path, study, model):
    with pytest.raises(InputError, match="fitted on another study"):
        write_report(tmp_path / "r.html", study=study[:2], model=model)


def test_a_folder_is_no_file(tmp_path, study):
    with pytest.raises(InputError, match=r"is a folder\. Name a file in it"):
        write_report(tmp_path, study=study)


def test_a_long_table_is_cut_and_says_where_the_whole_is():
    long, short = (
        element("pieces", {"least": 0.01}, table={"piece": range(n), "p": [0.5] * n})
        for n in (1234, 40)
    )
    told = "Shown: the first 40 of 1,234 pieces; all are in alignment_check(model)"
    assert told in long["caption"]
    assert "Shown: all pieces." in short["caption"]
    assert long["table"] == short["table"]
    assert len(short["table"]["rows"]) == 40


@given(st.lists(st.text(max_size=6), min_size=1, max_size=4))
@settings(max_examples=10, deadline=None)
def test_any_name_can_be_drawn(names):
    page = Page(f"<div>{picture(plot_sequences([names]), 'label')}</div>")
    assert page.unclosed == []
    (svg,) = page.drawings().values()
    ElementTree.fromstring(svg)


PLACED = {
    "shared": (
        {"place_shrinkage": 0.1},
        "A map shared by all subjects over 25 places",
    ),
    "left out": ({"place_shrinkage": np.inf}, "No shared map"),
    "none": ({"place": "auto"}, "subjects have different numbers of columns"),
}


@pytest.mark.parametrize("kind", PLACED)
def test_the_report_says_whether_subjects_share_a_map_or_why_not(tmp_path, kind):
    given, text = PLACED[kind]
    study = make_study(["a", "b", "c"])
    X = [s.data()[:, :25] for s in study]
    if kind == "none":
        X[0] = X[0][:, :24]
    model = GDM(2, **given).fit(X, [s.labels for s in study])
    page = write_report(tmp_path / "r.html", model=model).read_text()
    assert text in page
    assert str(escape(model.place_)) in page


def test_an_aligner_of_regions_cites_what_aligns_them(tmp_path, study):
    from brainweave import Parcelwise
    from brainweave.report.write import write_methods

    subjects = [
        Subject(s.id, s.data()[:, :30], labels=s.labels, runs=s.runs) for s in study
    ]
    model = Parcelwise(GDM(2), np.repeat([1, 2], 15)).fit(Study(subjects))
    inputs = gather(study=None, model=model, results=None, config=None)
    paragraph, references = write_methods(inputs)
    assert "parcel-wise alignment (Bazeille et al., 2021), each region by" in (
        paragraph
    )
    assert "(GDM; Li et al., 2020)" in paragraph
    assert len(references) == 3


def test_the_check_of_pieces_is_drawn_and_listed(tmp_path, rng):
    from brainweave import Parcelwise
    from brainweave.study.spaces import VolumeSpace

    space = VolumeSpace.from_mask(np.ones((6, 6, 6)), np.diag([8.0, 8, 8, 1]))
    people, story = [], rng.normal(size=(60, 3))
    for i in range(3):
        X = rng.normal(size=(60, 216))
        X[:, :108] += story @ rng.normal(size=(3, 108))
        ids = [f"film@{t}" for t in range(60)]
        people.append(Subject(f"{i:02}", X, stimuli=ids, space=space))
    study, parcels = Study(people), np.repeat([1, 2], 108)
    local = GDM(2, graph="time", shrinkage=0.5, place=None)
    page = tmp_path / "report.html"
    model = Parcelwise(local, parcels).fit(study)
    write_report(page, study=study, model=model)
    text = page.read_text(encoding="utf-8")
    part = text[text.index("Where alignment works") :]
    assert "data:image/png" in part[: part.index("<table")]
    assert [n for n in ("agreement", "p_max", "p_fdr") if n not in part] == []
    part = part[part.index("Shared features") :]
    table = part[part.index("<table") : part.index("</table")]
    assert table.count("<tr") == 1 + 2 * 2  # features of parcels
    assert "parcel" in table
    # without a brain space the table stands alone
    bare = Study([s._replace(space=None) for s in people])
    write_report(page, study=bare, model=Parcelwise(local, parcels).fit(bare))
    text = page.read_text(encoding="utf-8")
    assert "Where alignment works" in text
    assert "data:image/png" not in text


def test_the_methods_name_preprocessing_halves_and_tests(tmp_path, study):
    from brainweave.study.provenance import describe_record

    settings = {
        **{"preprocessed": True, "pipeline": "fMRIPrep", "task": "objects"},
        **{"confounds": "simple", "mask": "common", "scrub": None},
        **{"samples": "volumes", "hrf_delay": 5.0},
    }
    known = Study(list(study), "a study", {"settings": settings})
    results = [
        brainweave.between_subject_classification(
            aligner, known, protocol="held-out", halves="run"
        )
        for aligner in (GDM(2), PaperGDM(1, energy=0.9))
    ]
    results[1].method, results[1].design["voxels"] = "NoAlignment", "common"
    page = text_of(tmp_path, study=known, model=GDM(2).fit(known), results=results)
    methods = page.text[page.text.index("The data are those of") :]
    for text in (
        "Images: output of fMRIPrep, task objects (Esteban et al., 2019).",
        "Samples: single volumes, 5 s after the stimulus.",
        "Confounds: simple.",
        "Scrubbing: none.",
        f"Mask: {dict(describe_record(known.record))['mask']}.",
        "The first half of each subject's runs aligned and the rest were scored",
        "One subject was tested at a time",
        "by flipping the signs of the subjects' differences from it (one-sided)",
        "differences between them (two-sided, corrected for all pairs",
        "To check the alignment, each half of the aligning samples was held out once",
        "fMRIPrep: A robust preprocessing pipeline",
    ):
        assert text in methods
    assert "permuting each subject's labels" not in methods
    # the altered nu-SVM has a name of its own
    assert "with nu-SVM, overlapping pairs by their means (Schölkopf" in methods
    assert "in all masks" in page.text


def test_what_was_done_to_the_data_is_a_chapter(tmp_path, study):
    record = {
        "settings": {"confounds": None, "samples": "volumes", "hrf_delay": 5.0},
        "missing_runs": {"02": ["3"]},
    }
    known = Study(list(study), "a study", record)
    page = Page(write_report(tmp_path / "r.html", study=known).read_text())
    assert "Data and preprocessing" in page.text
    assert "single volumes, 5 s after the stimulus" in page.text
    assert "in 4 categories. Samples: single volumes, 5 s after" in page.text
    assert "Missing runs: " in page.text
    bare = Page(write_report(tmp_path / "b.html", study=study).read_text())
    assert "Preprocessing" not in bare.text


# -- what is rarer ---------------------------------------------------------------------


def text_of(path, **content):
    return Page(write_report(path / "r.html", **content).read_text("utf-8"))


def test_one_shared_feature_is_drawn_on_a_line(tmp_path, study):
    page = text_of(tmp_path, study=study, model=GDM(1).fit(study))
    (svg,) = (svg for alt, svg in page.drawings().items() if "by category" in alt)
    assert svg.count(">shared feature 0<") == 2  # both axes


def test_a_model_must_be_of_this_study_and_of_its_state(tmp_path, study, model):
    others = Study([Subject(f"x{s.id}", s.data(), labels=s.labels) for s in study])
    with pytest.raises(InputError, match="fitted on another study"):
        write_report(tmp_path / "r.html", study=others, model=model)
    old = GDM(2).fit(study)
    old.study_fingerprint = "of another day"
    with pytest.raises(InputError, match="another version of it"):
        write_report(tmp_path / "r.html", study=study, model=old)
    first = Study([s.select(np.arange(20)) for s in study])
    page = text_of(tmp_path, study=first, model=GDM(2).fit(study))
    assert "fitted on 24 samples per subject; the study shown here has 20" in page.text


def test_settings_of_any_kind_are_listed(tmp_path, study):
    config = {
        "weights": np.ones((2, 3)),
        "kernel": np.tanh,
        "graph": make_study,
        "sizes": [1, None],
        "empty": {},
        "shape": slice(3),
    }
    page = text_of(tmp_path, study=study, config=config)
    rows = dict(page.tables["configuration"][1:])
    assert rows["weights"] == "array of shape (2, 3)"
    assert rows["kernel"] == "tanh"
    assert rows["graph"] == "make_study"
    assert rows["sizes"] == "[1, None]"
    assert rows["empty"] == "{}"
    assert rows["shape"] == "slice(None, 3, None)"


def test_no_alignment_alone_gives_no_verdict_on_alignment(tmp_path):
    result = FakeResult(np.array([0.9]), method="NoAlignment", p_value=0.01)
    page = text_of(tmp_path, results=result)
    assert "Alignment worked" not in page.text
    assert "without alignment" in page.text


def test_samples_that_cannot_be_held_out_are_drawn_as_they_are(tmp_path):
    """One sample of a category: no half of them is left to align the other."""
    import nibabel as nib

    from brainweave.study.spaces import VolumeSpace

    rng = np.random.default_rng(0)
    space = VolumeSpace(nib.Nifti1Image(np.ones((2, 2, 2), np.uint8), np.eye(4)))
    subjects = [
        Subject(f"0{i}", rng.normal(size=(2, 8)), labels=["a", "b"], space=space)
        for i in range(2)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PaperGDM(1, energy=0.9).fit(Study(subjects))
        page = text_of(tmp_path, study=Study(subjects), model=model)
    assert "The model may have been fitted on these samples" in page.text
    # both maps are drawn, and nobody claims that a feature holds, or not
    assert page.text.count("Shared feature 0, subject 0") == 2
    assert "does not hold up" not in page.text


def test_a_report_leaves_no_figure_open(tmp_path):
    import matplotlib.pyplot as plt

    plt.close("all")
    study, model = brains()
    write_report(tmp_path / "r.html", study=study, model=model)
    assert plt.get_fignums() == []


@pytest.mark.parametrize("signal", [0, 1])
def test_the_first_lines_of_a_report_say_whether_alignment_worked(tmp_path, signal):
    study = signal_or_noise(0, signal=signal)
    model = GDM(n_components=2).fit(study)
    html = write_report(tmp_path / "r.html", study=study, model=model).read_text(
        "utf-8"
    )
    top = html[html.index("<h1>") : html.index('class="headlines"')]
    said, other = "Alignment worked", "No evidence of a shared space"
    assert (said if signal else other) in top
    assert (other if signal else said) not in top
    assert "All samples are held-out" in html


def test_a_report_of_one_study_with_the_results_of_another(tmp_path):
    one, other = (signal_or_noise(s, signal=1) for s in (0, 1))
    named = signal_or_noise(2, signal=1, n_subjects=5)
    lettered = signal_or_noise(3, signal=1, categories="xyz")
    result = between_subject_classification(GDM(2), one)
    assert write_report(tmp_path / "r.html", study=one, results=result).is_file()
    five = between_subject_classification(GDM(2), named)
    with pytest.raises(InputError, match="another study than the one"):
        write_report(tmp_path / "r.html", study=one, results=five)
    xyz = between_subject_classification(GDM(2), lettered)
    with pytest.raises(InputError, match="another study"):
        write_report(tmp_path / "r.html", study=one, results=xyz)
    model = GDM(2).fit(named.subset(subjects=["05", "01", "02", "03"]))
    with pytest.raises(InputError, match="fitted on another study"):
        write_report(tmp_path / "r.html", study=other, model=model)


def test_both_protocols_in_one_report_keep_headline_baseline_and_citation(tmp_path):
    """ "gdm (joint)" is a name; the method is GDM."""
    study = signal_or_noise(0, signal=1)
    results = {
        f"{name} ({protocol})": between_subject_classification(
            aligner, study, protocol=protocol
        )
        for name, aligner in (("gdm", GDM(2)), ("none", NoAlignment()))
        for protocol in ("joint", "held-out")
    }
    page = write_report(tmp_path / "r.html", study=study, results=results)
    html = page.read_text("utf-8")
    assert "Graph-based decoding model for functional alignment" in html
    tiles = html[html.index('class="headlines"') : html.index('class="methods"')]
    assert tiles.index("accuracy, held-out") < tiles.index("accuracy, joint")
    assert tiles.count("GDM; chance") == 2
    assert tiles.count("without alignment") >= 2
    assert "with gdm (joint)" not in html
    # no permutations, no model, four subjects
    assert "Whether alignment worked cannot be tested" in html
