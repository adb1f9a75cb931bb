"""The quickstart, run in a notebook: pictures are pictures, values are tables."""

import base64
import io
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough  # examples-quick runs it

QUICKSTART = Path(__file__).parents[1] / "docs/quickstart.md"
SHOWN = ["study", "gdm", "gdm.maps_[0]", "alignment_check(gdm)", "result"]
DRAWN = [
    "plot_sequences(study)",
    "plot_shared_space(shared, [subject.labels for subject in other])",
    "plot_accuracy(result)",
    "plot_brain(gdm.maps_[0].to_image(0))",
]
PROGRESS = "between_subject_classification(GDM(2), study, progress=True).mean"


def _quickstart():
    """Return the Python blocks of the page as cells, without prompts and output."""
    text = QUICKSTART.read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
        yield "\n".join(re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", block, re.M))


@pytest.fixture(scope="module")
def outputs():
    """Run the quickstart and more in one fresh kernel; return what each cell shows."""
    nbclient = pytest.importorskip("nbclient", reason="of the dev extra")
    pytest.importorskip("ipykernel", reason="of the dev extra")
    from nbformat.v4 import new_code_cell, new_notebook

    names = {re.match(r"\w+", call)[0] for call in DRAWN}
    cells = [*_quickstart(), *SHOWN, PROGRESS]
    cells[1:1] = [f"from brainweave.plotting import {', '.join(sorted(names))}"]
    notebook = new_notebook(cells=[new_code_cell(c) for c in [*cells, *DRAWN]])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return {cell.source: cell.outputs for cell in notebook.cells}


def _pictures(outputs):
    from PIL import Image

    for output in outputs:
        if "image/png" in output.get("data", {}):
            png = base64.b64decode(output["data"]["image/png"])
            yield Image.open(io.BytesIO(png)).convert("RGB")


@pytest.mark.parametrize("call", DRAWN)
def test_a_figure_is_shown_once_as_a_picture(outputs, call):
    (picture,) = _pictures(outputs[call])
    assert min(picture.size) > 100
    assert len(picture.getcolors(maxcolors=2**24)) > 20


@pytest.mark.parametrize("name", SHOWN)
def test_a_value_is_shown_as_html_and_in_one_line(outputs, name):
    (shown,) = outputs[name]
    assert "<table" in shown["data"]["text/html"] or name == "gdm"
    assert "\n" not in shown["data"]["text/plain"]


def test_the_page_itself_draws_its_picture(outputs):
    (drawing,) = [source for source in outputs if "axes = plot" in source]
    assert len(list(_pictures(outputs[drawing]))) == 1


def test_progress_is_a_line_of_text_that_goes_away(outputs):
    *bar, shown = outputs[PROGRESS]
    assert set(shown["data"]) == {"text/plain"}
    assert {part["name"] for part in bar} == {"stderr"}
    text = "".join(part["text"] for part in bar)
    assert "100%" in text
    assert text.count("\n") == 1
    assert text.endswith("\x1b[2K")  # the line is erased


def test_nothing_else_is_printed(outputs):
    for source, shown in outputs.items():
        names = {part["name"] for part in shown if part["output_type"] == "stream"}
        assert source == PROGRESS or names <= {"stdout"}, source
