"""Check that the files which describe the package to others agree with pyproject.toml.

``make package-check`` runs this. Disagreements are errors; what only a person can fill
in before a release, such as the authors of the paper, is pointed out.
"""

import json
import re
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PLACEHOLDER = "AUTHOR"
CONDA_NAMES = {"matplotlib": "matplotlib-base"}  # the part without a window


def check() -> tuple[list[str], list[str]]:
    """Return what is wrong and what is left to a person."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    return [
        *wrong_licences(project),
        *wrong_requirements(project),
        *wrong_citations(),
    ], unfinished()


def wrong_licences(project: dict) -> list[str]:
    """Compare the licence of every description with that of the project."""
    recipe = _read("recipe/meta.yaml")
    found = {
        "CITATION.cff": yaml.safe_load(_read("CITATION.cff"))["license"],
        ".zenodo.json": json.loads(_read(".zenodo.json"))["license"],
        "recipe/meta.yaml": re.search(r"^  license: (\S+)$", recipe, re.M)[1],
    }
    return [
        f"{file}: the licence is {licence}, not {project['license']}."
        for file, licence in found.items()
        if licence != project["license"]
    ]


def wrong_requirements(project: dict) -> list[str]:
    """Compare what conda installs with what pip installs."""
    pip = set()
    for line in project["dependencies"]:
        name, limits = re.fullmatch(r"([\w.-]+)(.*)", line).groups()
        pip.add(f"{CONDA_NAMES.get(name, name)} {limits}")
    run = _read("recipe/meta.yaml").split("\n  run:\n")[1].split("\n\n")[0]
    conda = {line for line in re.findall(r"^    - (.*)$", run, re.M)}
    conda = {line for line in conda if not line.startswith("python ")}
    return [
        f"recipe/meta.yaml and pyproject.toml disagree: {line}."
        for line in sorted(pip ^ conda)
    ]


def wrong_citations() -> list[str]:
    """Find keys that the paper cites and its bibliography lacks, and the reverse."""
    cited = set(re.findall(r"@([a-z]+\d{4}\w*)", _read("paper/paper.md")))
    known = set(re.findall(r"^@\w+\{(\w+),", _read("paper/paper.bib"), re.M))
    return [
        *(
            f"paper/paper.md cites {key}, which paper.bib lacks."
            for key in cited - known
        ),
        *(f"paper/paper.bib has {key}, which is not cited." for key in known - cited),
    ]


def unfinished() -> list[str]:
    """Find placeholders that a maintainer has to replace."""
    notes = []
    if PLACEHOLDER in _read("paper/paper.md"):
        notes.append("paper/paper.md: replace AUTHOR by the names of the authors.")
    if re.search(r"sha256: 0{64}", _read("recipe/meta.yaml")):
        notes.append("recipe/meta.yaml: set the checksum of the archive on PyPI.")
    return notes


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    wrong, notes = check()
    for line in notes:
        print(f"before a release: {line}")
    sys.exit("\n".join(wrong) or None)
