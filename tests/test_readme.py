"""The README claims what the commands print."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def _rows(text):
    """Return the rows of a result table: method, protocol, mean, std, chance."""
    rows = re.findall(
        r"^(\S.*?)  +(joint|held-out) +(0\.\d+) +(0\.\d+) +(0\.\d+) ", text, re.M
    )
    return {(method.strip(), protocol): numbers for method, protocol, *numbers in rows}


@pytest.mark.thorough  # examples-quick runs it
def test_the_demo_prints_the_table_of_the_readme(tmp_path, capsys):
    from brainweave.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["demo", str(tmp_path / "demo"), "-q"])
    assert not ended.value.code
    said, claimed = capsys.readouterr().out, README.read_text(encoding="utf-8")
    assert _rows(said)
    assert _rows(said) == _rows(claimed)
    verdict = next(x for x in said.splitlines() if x.startswith("With GDM, "))
    assert " ".join(verdict.split()) in " ".join(claimed.split())
    made = {path.name for path in (tmp_path / "demo").iterdir()}
    assert made == {
        *("study", "report.html", "results.json", "folds.tsv", "comparison.tsv"),
        *("model.safetensors", "model.toml"),
    }
