"""The benchmark of place runs, and its table is written."""

import importlib.util
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]


def load_file(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def benchmark():
    return load_file(ROOT / "benchmarks/place.py")


@pytest.mark.thorough  # bench-quick runs the command itself
def test_the_quick_form_is_shown_as_a_table(benchmark, monkeypatch, tmp_path):
    small = {"n_components": 3, "n_samples": 50, "shape": (8, 8, 8), "signal": 1.0}
    monkeypatch.setattr(benchmark, "BRAINS", {**small, "mask_variability": 0.05})
    monkeypatch.setattr(benchmark, "SUBJECTS", 4)
    monkeypatch.setattr(sys, "argv", ["place.py", "--quick", "-o", str(tmp_path)])
    benchmark.main()
    table = pd.read_csv(tmp_path / "place.csv")
    assert set(table["condition"]) == set(benchmark.CONDITIONS)
    one_film = table[table["condition"] == "one film"].set_index("method")
    assert set(one_film.index) == set(benchmark.METHODS)
    assert one_film.loc["GDM", "accuracy"] > 0.5
    text = load_file(ROOT / "tools/results.py").block("place", tmp_path)
    assert "Zero-shot:" in text
    assert f"{100 * one_film.loc['GDM', 'accuracy']:.1f}" in text


def test_losses_are_told():
    results = load_file(ROOT / "tools/results.py")
    cell = {"condition": "one film", "misregistration_mm": 4.0, "own_topography": 0.5}
    rows = [
        {**cell, "seed": seed, "method": method, "accuracy": accuracy + 0.01 * seed}
        for seed in range(4)
        for method, accuracy in (
            *(("GDM", 0.5), ("GDM, place=None", 0.6), ("no alignment", 0.2)),
        )
    ]
    rows[0]["accuracy"] = 0.52  # seeds differ, and so does what is lost
    told = results.place_losses(pd.DataFrame(rows))
    assert "9.5 ± 0.5 points below *GDM, place=None*" in told
    for row in rows:
        row["accuracy"] = 0.65 if row["method"] == "GDM" else row["accuracy"]
    assert "nowhere" in results.place_losses(pd.DataFrame(rows))
