"""Write reports of six kinds of studies, and take pictures of them to look at.

``python tools/report_screenshots.py [NAME ...]`` writes, for each of demo, noise, bids,
categories, film and raider (if its files are there) the report at 1280 and 390 pixels,
light and dark, and its printed pages, into ``out/report_screenshots``. Needs playwright
and Chromium (``tools/install_browser.sh``); pages of the PDF become pictures with
pymupdf.
"""

import os
import shutil
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "report_screenshots"
WIDTHS = (1280, 390)
THEMES = ("light", "dark")
RAIDER = Path(os.environ.get("BRAINWEAVE_RAIDER", "shared/data/raider_images"))


def report_of(name, study, *, methods, n_components, n_permutations=0, **options):
    """Fit, score under both protocols, and write the report."""
    from brainweave import GDM, between_subject_classification
    from brainweave.report import write_report

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = {
            f"{label} ({protocol})": between_subject_classification(
                aligner,
                study,
                protocol=protocol,
                n_permutations=n_permutations,
                random_state=0,
            )
            for label, aligner in methods.items()
            for protocol in ("joint", "held-out")
        }
        model = GDM(n_components).fit(study)
    said = dict.fromkeys(str(w.message) for w in caught)
    return write_report(
        OUT / f"{name}.html",
        study=study,
        model=model,
        results=results,
        title=f"Report: {name}",
        warnings=said,
        **options,
    )


def demo():
    """Write what ``brainweave demo`` writes."""
    from brainweave.cli.console import run

    run(["demo", str(OUT / "demo"), "--n-subjects", "5", "--quiet"])
    return shutil.copy(OUT / "demo" / "report.html", OUT / "demo.html")


def noise():
    """Subjects who share nothing."""
    from brainweave import GDM, simulate_study

    study = simulate_study(n_subjects=5, signal=0, random_state=0)
    return report_of(
        "noise", study, methods={"GDM": GDM(3)}, n_components=3, n_permutations=40
    )


def bids():
    """Images as fMRIPrep leaves them, with the defects that studies have."""
    sys.path.insert(0, str(ROOT))
    from brainweave import GDM, load_bids
    from tests.bids_trees import messy_fmriprep

    folder = OUT / "bids"
    shutil.rmtree(folder, ignore_errors=True)
    messy_fmriprep(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = load_bids(folder, task="objects", ignore="button")
    return report_of("bids", study, methods={"GDM": GDM(2)}, n_components=2)


def categories():
    """Twenty-four categories, which must be tellable apart."""
    from brainweave import GDM, simulate_study

    names = [f"category {chr(65 + i)}" for i in range(24)]
    study = simulate_study(n_subjects=4, categories=names, random_state=0)
    return report_of("categories", study, methods={"GDM": GDM(8)}, n_components=8)


def film():
    """Write the report of a film that three of six people saw in part."""
    from brainweave import (
        GDM,
        SRM,
        NoAlignment,
        compare_methods,
        load_bids,
        simulate_study,
    )
    from brainweave.report import write_report

    folder = OUT / "film_bids"
    shutil.rmtree(folder, ignore_errors=True)
    simulated = simulate_study(
        n_subjects=6, n_voxels=150, n_runs=2, design="movie", missing_parts=3
    )
    simulated.to_bids(folder, task="film", events=False)
    study = load_bids(folder, task="film", films="runs", scrub=0.5)
    methods = {"GDM": GDM(8, graph="time"), "SRM": SRM(8), "none": NoAlignment()}
    results = compare_methods(study, methods).results
    model = GDM(8, graph="time").fit(study)
    path = OUT / "film.html"
    return write_report(path, study=study, model=model, results=results)


def raider():
    """Seven categories of images in ten people (Haxby et al., 2011)."""
    sys.path.insert(0, str(ROOT))
    from brainweave import GDM, DetSRM, NoAlignment
    from reproduction.real import load_raider_images

    study = load_raider_images(RAIDER)
    methods = {"GDM": GDM(6), "SRM": DetSRM(10), "none": NoAlignment()}
    return report_of("raider", study, methods=methods, n_components=6)


REPORTS = {f.__name__: f for f in (demo, noise, bids, categories, film, raider)}


def find_chromium():
    """Return where Chromium is."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("BRAINWEAVE_CHROMIUM")
    return found or next(filter(None, map(shutil.which, names)), None)


def take(browser, name, report):
    """Take all pictures of one report."""
    for width in WIDTHS:
        for theme in THEMES:
            view = {"width": width, "height": 900}
            context = browser.new_context(viewport=view, color_scheme=theme)
            page = context.new_page()
            page.goto(Path(report).as_uri())
            page.screenshot(path=OUT / f"{name}-{width}-{theme}.png", full_page=True)
            if width == WIDTHS[0] and theme == THEMES[0]:
                page.pdf(path=OUT / f"{name}.pdf", format="A4")
            context.close()
    try:
        import pymupdf
    except ImportError:
        return
    for number, page in enumerate(pymupdf.open(OUT / f"{name}.pdf"), start=1):
        page.get_pixmap(dpi=70).save(OUT / f"{name}-print-{number:02}.png")


def main(names):
    """Write the reports of these names and take their pictures."""
    from playwright.sync_api import sync_playwright

    OUT.mkdir(parents=True, exist_ok=True)
    for name in names or REPORTS:
        if name == "raider" and not RAIDER.is_dir():
            print(f"raider: no files at {RAIDER} (BRAINWEAVE_RAIDER); left out")
            continue
        report = REPORTS[name]()
        with sync_playwright() as driver:
            flags = ["--no-sandbox", "--disable-gpu"]
            browser = driver.chromium.launch(
                executable_path=find_chromium(), args=flags
            )
            take(browser, name, report)
            browser.close()
        print(f"{name}: {OUT}/{name}-*.png")


if __name__ == "__main__":
    main(sys.argv[1:])
