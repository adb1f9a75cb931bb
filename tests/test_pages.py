"""What README and guide show is run: as doctests, and here what needs files."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import brainweave
from brainweave import simulate_study
from brainweave.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *(ROOT / f"docs/{name}.md" for name in ("index", "quickstart")),
    *sorted((ROOT / "docs/guide").glob("*.md")),
]
BLOCK = re.compile(r"^```(.*?)\n(.*?)^```$", re.M | re.S)
# what begins so is run elsewhere
ELSEWHERE = {
    "pip install brainweave": "tools/test_installed.sh",
    "make ": "test_docs.py checks that the targets exist",
    "brainweave demo": "test_readme.py",
    "python -m reproduction": "tests/reproduction",
    "brainweave fit STUDY --searchlight 10": "tests/cli, with voxels as few as here",
    "brainweave map STUDY": "tests/cli/test_maps.py, with atlases made there",
    "method  ": "output, which test_readme.py compares",
}


def _blocks(kind):
    """Find the blocks without prompts on all pages; those of a shell name no kind."""
    for page in PAGES:
        for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if language == kind and ">>> " not in text:
                yield page.stem, text


# what holds so continues the page's doctests with what is not there
CONTINUED = {
    "schaefer-": "an atlas that nilearn downloads: tests/study/test_atlases.py",
    "alignment_check(model, aligning)": "tests/aligners/test_parcelwise.py",
}
PYTHON = [
    pytest.param(text, id=page)
    for page, text in _blocks("python")
    if not any(part in text for part in CONTINUED)
]
LINES = {
    line.split("  #")[0].strip(): page
    for page, text in _blocks("")
    for line in text.splitlines()
    if not any(text.startswith(known) or line.startswith(known) for known in ELSEWHERE)
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make the files that the pages name: studies of images and of a film."""
    folder = tmp_path_factory.mktemp("pages") / "data"
    study = simulate_study(
        n_subjects=3, categories=3, n_voxels=60, n_runs=2, random_state=0
    )
    study.to_bids(folder)
    mask = next(folder.glob("derivatives/fmriprep/sub-01/func/*_mask.nii.gz"))
    shutil.copy(mask, folder / "vt.nii.gz")
    for name in ("BIDS_FOLDER", "BIDS_DIR"):
        shutil.copytree(folder, folder.parent / name)
        (folder.parent / name).rename(folder / name)
    film = simulate_study(
        n_subjects=3,
        design="movie",
        n_voxels=60,
        n_samples=150,
        n_runs=3,
        random_state=0,
    )
    film.to_bids(folder / "ds000000", task="movie", events=False)
    shutil.copytree(folder / "ds000000", folder / "film/BIDS_FOLDER")
    runs = sorted(folder.glob("ds000000/sub-01/func/*_bold.nii.gz"))
    for name, run in zip(("a", "b", "a2"), runs, strict=False):
        shutil.copy(run, folder / f"{name}.nii.gz")
    starts = "".join(f"{n}\tPieman\t{300 * n}\n" for n in range(1, 4))
    (folder / "films.tsv").write_text(f"run\tfilm\tstart\n{starts}")
    return folder


@pytest.mark.filterwarnings("ignore")  # of data that are made up
@pytest.mark.parametrize("text", PYTHON)
def test_python_that_reads_files_runs(folder, monkeypatch, text):
    monkeypatch.chdir(folder)
    exec(text, {name: getattr(brainweave, name) for name in brainweave.__all__})


@pytest.fixture
def atlas(folder, monkeypatch):
    """Put an atlas in the place of the one that nilearn downloads."""
    from nibabel import Nifti1Image
    from nilearn import datasets
    from nilearn.image import load_img
    from sklearn.utils import Bunch

    def fetch(**options):
        mask = load_img(folder / "vt.nii.gz")
        values = np.where(mask.get_fdata() > 0, 1, 0).astype("int16")
        return Bunch(maps=Nifti1Image(values, mask.affine), labels=["one"])

    monkeypatch.setattr(datasets, "fetch_atlas_schaefer_2018", fetch)


@pytest.mark.filterwarnings("ignore")
def test_commands_run_in_the_order_of_the_pages(folder, monkeypatch, capsys, atlas):
    for line in LINES:
        of_a_film = "film" in line.lower()  # its files bear the same names elsewhere
        monkeypatch.chdir(folder / "film" if of_a_film else folder)
        program, *words = shlex.split(line)
        assert program == "brainweave", f"{line}: run it, or say in ELSEWHERE where"
        if words[0] == "convert":
            shutil.rmtree(words[2], ignore_errors=True)
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert not ended.value.code, f"{line}: {capsys.readouterr().err}"


def test_most_pages_are_found():
    assert len(PYTHON) > 2
    assert len(LINES) > 8
