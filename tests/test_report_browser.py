"""The report in a real browser: quiet, offline and readable.

Needs Debian's Chromium (``tools/install_browser.sh`` brings it where it may) and the
playwright package; where either is missing these tests alone are skipped.
"""

import importlib.util
import io
import os
import shutil
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brainweave import PaperGDM
from brainweave.report import write_report
from brainweave.study import Study, Subject
from tests.test_report import brains

ATTACK = "<script>alert(1)</script>"
CATEGORIES = ["cat", "face", ATTACK]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DARK, LIGHT = "rgb(14, 17, 22)", "rgb(246, 247, 249)"


@dataclass
class FakeResult:
    scores: Any
    method: str = "GDM"
    protocol: str = "joint"
    chance: float = 1 / 3
    p_value: float | None = 0.01
    categories: list = field(default_factory=lambda: CATEGORIES)
    confusion: Any = field(default_factory=lambda: 5 * np.eye(3) + 1)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(3, 5))
    subjects = []
    for i in range(3):
        codes = rng.permutation(np.repeat(np.arange(3), 8))
        X = centroids[codes] @ rng.normal(size=(5, 30)) + rng.normal(size=(24, 30))
        labels = np.array(CATEGORIES, dtype=object)[codes]
        subjects.append(Subject(f"0{i}", X, labels=labels, runs=np.repeat([1, 2], 12)))
    study = Study(subjects)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PaperGDM(n_components=4, energy=0.82).fit(study)
    path = tmp_path_factory.mktemp("browser") / "report.html"
    results = [FakeResult(np.array([0.5, 0.9])), FakeResult([0.4], protocol="held-out")]
    return write_report(path, study=study, model=model, results=results, title=ATTACK)


@pytest.fixture(scope="module")
def brain_report(tmp_path_factory):
    study, model = brains(n_subjects=3)
    path = tmp_path_factory.mktemp("browser") / "brains.html"
    return write_report(path, study=study, model=model)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the playwright package is not installed"
    )
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("BRAINWEAVE_CHROMIUM") or next(
        filter(None, map(shutil.which, names)), None
    )
    if found is None:
        pytest.skip("no Chromium on this machine: run tools/install_browser.sh as root")
    with playwright.sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path=found, args=FLAGS)
        except playwright.Error as error:
            pytest.skip(f"{found} does not start here: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


class Visit:
    """A page that remembers everything it should not do."""

    def __init__(self, browser, report, **options):
        options = {"viewport": {"width": 1100, "height": 900}, **options}
        self.context = browser.new_context(offline=True, **options)
        self.page = self.context.new_page()
        self.console, self.requests, self.dialogs = [], [], []
        self.page.on("console", lambda m: self.console.append(m.text))
        self.page.on("pageerror", lambda e: self.console.append(str(e)))
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.on("dialog", self._dismiss)
        self.page.goto(report.as_uri())

    def _dismiss(self, dialog):
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def style(self, selector, name):
        script = "([s, n]) => getComputedStyle(document.querySelector(s))[n]"
        return self.page.evaluate(script, [selector, name])


@pytest.fixture
def visit(browser, report):
    visits = []

    def open_page(page=report, **options):
        visits.append(Visit(browser, page, **options))
        return visits[-1]

    yield open_page
    for one in visits:
        one.context.close()


def test_the_page_is_quiet_and_asks_nobody(visit, report):
    one = visit()
    one.page.wait_for_load_state("networkidle")
    outside = [url for url in one.requests if not url.startswith("data:")]
    assert outside == [report.as_uri()]
    assert one.console == []
    assert one.dialogs == []
    assert one.page.title() == ATTACK


@pytest.mark.parametrize("system", [DARK, LIGHT])
def test_colours_follow_the_system(visit, system):
    one = visit(color_scheme="dark" if system == DARK else "light")
    assert one.style("body", "backgroundColor") == system
    filtered = one.style("#sequences img", "filter")
    assert (filtered == "none") == (system == LIGHT)
    assert one.console == []


def test_print_is_light_and_without_controls(visit):
    one = visit(color_scheme="dark")
    one.page.emulate_media(media="print", color_scheme="dark")
    assert one.style("body", "backgroundColor") == "rgb(255, 255, 255)"
    assert one.style("body", "color") == "rgb(0, 0, 0)"
    assert one.style("header", "display") == "none"
    pdf = one.page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")


def test_every_picture_is_drawn(visit, report, brain_report):
    for page in (report, brain_report):
        one = visit(page)
        drawn = one.page.locator("img").evaluate_all(
            "all => all.map(i => i.naturalWidth)"
        )
        assert len(drawn) > 2
        assert min(drawn) > 0


SMALL_TEXT = """() => {
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, parent = node.parentElement;
    if (!node.textContent.trim() || parent.closest("script, style")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    const size = parseFloat(getComputedStyle(parent).fontSize);
    if (size < 11) found.push([size, node.textContent.trim()]);
  }
  for (const image of document.images) {  // the smallest text of a drawing has 8 pt
    const scale = image.getBoundingClientRect().width / image.naturalWidth;
    const size = 8 * scale * (image.src.startsWith("data:image/svg") ? 96 : 140) / 72;
    if (size < 11) found.push([size, image.alt]);
  }
  return found;
}"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("which", ["report", "brain_report"])
def test_no_text_is_too_small_to_read(visit, request, which, width):
    page = request.getfixturevalue(which)
    one = visit(page, viewport={"width": width, "height": 844})
    one.page.locator("details").evaluate_all("all => all.forEach(d => d.open = true)")
    assert one.page.evaluate(SMALL_TEXT) == []
    assert one.page.evaluate("document.documentElement.scrollWidth") == width


def test_brains_have_no_white_box_in_the_dark(visit, brain_report):
    from PIL import Image

    one = visit(brain_report, color_scheme="dark")
    brain = one.page.locator('img[alt^="Shared feature 0"]').first
    brain.scroll_into_view_if_needed()
    shot = brain.screenshot()
    pixels = np.asarray(Image.open(io.BytesIO(shot)).convert("L"))
    assert np.median(pixels) < 60  # the paper of the page, not that of the picture
    assert np.median(pixels[:4, :4]) < 60


def test_print_keeps_headings_with_what_they_head(visit):
    one = visit()
    one.page.emulate_media(media="print")
    for selector in ("h2", "h3", ".intro"):
        assert one.style(selector, "breakAfter") == "avoid"
    assert one.style(".intro", "breakInside") == "avoid"
    assert one.style("figure", "breakInside") == "avoid"
    assert one.style(".grid", "display") == "block"  # a grid does not keep with it


def test_pictures_are_taken_of_a_report(browser, brain_report, tmp_path, monkeypatch):
    path = Path(__file__).parents[1] / "tools" / "report_screenshots.py"
    spec = importlib.util.spec_from_file_location("report_screenshots", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(tool, "OUT", tmp_path)
    tool.take(browser, "brains", brain_report)
    shots = {f"brains-{w}-{t}.png" for w in (1280, 390) for t in ("light", "dark")}
    assert {p.name for p in tmp_path.iterdir()} >= {*shots, "brains.pdf"}
    kinds = {"demo", "noise", "bids", "categories", "film", "raider"}
    assert set(tool.REPORTS) == kinds
