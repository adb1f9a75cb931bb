import subprocess
import sys

import pytest

import brainweave


def test_import_is_light():
    code = "import sys, brainweave; print(' '.join(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"matplotlib", "nibabel", "nilearn", "pandas", "torch"} & set(loaded)


@pytest.mark.parametrize("name", brainweave.__all__)
def test_every_public_name_can_be_imported(name):
    assert getattr(brainweave, name) is not None
    assert name in dir(brainweave)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="No brainweave attribute hyperalign"):
        _ = brainweave.hyperalign


def test_docstrings_say_return():
    from pathlib import Path

    for path in Path(brainweave.__file__).parent.rglob("*.py"):
        assert '"""Give ' not in path.read_text(encoding="utf-8"), path


def test_contributing_names_every_room():
    from pathlib import Path

    package = Path(brainweave.__file__).parent
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = {f"{p.parent.name}/" for p in package.glob("*/__init__.py")}
    modules = {p.stem for p in package.glob("*.py")}
    modules -= {"__init__", "__main__", "_version"}
    assert {name for name in rooms | modules if f"`{name}`" not in page} == set()
