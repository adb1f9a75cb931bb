"""The settings are those of the paper's Table 1, and the numbers those of Table 2."""

import pytest

from brainweave._core.exceptions import InputError
from reproduction import METHODS, dataset, datasets, figures
from reproduction.settings import OURS, figure

# as printed: subjects, samples, voxels, categories, K, energy, nu, left out
TABLE_1 = {
    "DS105WB": (6, 994, 19174, 8, 10, 82, 0.8, 1),
    "DS105ROI": (6, 994, 2294, 8, 10, 82, 0.8, 1),
    "DS011": (14, 271, 19174, 2, 10, 82, 0.3, 2),
    "DS001": (16, 485, 19174, 4, 10, 82, 0.5, 4),
    "DS232": (10, 1691, 9947, 4, 10, 82, 0.8, 2),
    "Raider": (10, 56, 1000, 7, 20, 35, 0.5, 2),
}
# nu-SVM, HA, KHA, SVDHA, SRM, RSRM, RHA, GDM
TABLE_2 = {
    "DS105WB": (11.67, 39.70, 39.22, 30.48, 39.69, 40.01, 52.50, 60.68),
    "DS105ROI": (13.06, 48.05, 48.22, 41.33, 48.14, 48.51, 57.63, 62.22),
    "DS011": (51.80, 85.39, 85.79, 74.42, 85.47, 85.58, 91.80, 92.49),
    "DS232": (25.89, 69.34, 69.38, 56.77, 69.18, 69.25, 77.64, 82.47),
    "DS001": (34.32, 56.74, 57.10, 51.99, 56.83, 57.20, 57.87, 62.68),
    "Raider": (26.61, 60.48, 60.71, 58.99, 60.65, 62.38, 59.82, 64.52),
}
FOLDS = {"DS105WB": 12, "DS105ROI": 12, "DS011": 14, "DS001": 8, "DS232": 10}
FOLDS["Raider"] = 15


def test_the_datasets_are_those_of_the_paper():
    assert set(datasets()) == set(TABLE_1)


@pytest.mark.parametrize("name", TABLE_1)
def test_settings_are_table_1(name):
    d = dataset(name)
    shape = (d.subjects, d.samples, d.voxels, d.categories)
    found = (*shape, d.n_components, round(100 * d.energy), d.nu, d.leave_out)
    assert found == TABLE_1[name]


def test_the_film_is_cut_into_thirds():
    raider = dataset("Raider")
    film = (raider.movie_samples, raider.movie_parts, raider.movie_part_samples)
    assert film == (2203, 3, 734)
    assert raider.graph == "time"
    assert {dataset(n).graph for n in datasets() if n != "Raider"} == {"labels"}


@pytest.mark.parametrize("name", FOLDS)
def test_folds_are_counted_as_in_the_paper(name):
    assert dataset(name).n_folds == FOLDS[name]


@pytest.mark.parametrize("name", TABLE_2)
def test_published_numbers_are_table_2(name):
    published = dataset(name).published
    methods = [m for m in METHODS if m not in ("DetSRM", *OURS)]
    assert [published[m][0] for m in methods] == list(TABLE_2[name])
    assert all(0 < std < 6 for _, std in published.values())
    # the paper's claim: GDM is the best everywhere
    assert max(published, key=lambda m: published[m][0]) == "GDM"


def test_figures_are_those_of_the_captions():
    assert figures() == ["figure1", "figure2", *(f"figureS{n}" for n in range(3, 9))]
    kernels = {"gaussian": 5000, "quadratic": 100, "sigmoid": 200}
    energies = [[0.65, 0.6, 0.35], [0.8, 0.7, 0.35], [0.75, 0.7, 0.35]]
    for number, (kernel, hp) in enumerate(kernels.items()):
        missing = figure(f"figureS{3 + number}")
        energy = figure(f"figureS{6 + number}")
        assert (
            (missing.kernel, missing.hp) == (energy.kernel, energy.hp) == (kernel, hp)
        )
        assert (missing.what, energy.what) == ("incompleteness", "energy")
        assert [p.energy for p in missing.panels] == energies[number]
        for plan in (missing, energy):
            assert [p.nu for p in plan.panels] == [0.8, 0.5, 0.5]
        assert {p.n_components for p in missing.panels} == {10}
        assert {p.n_components for p in energy.panels} == {6 if number == 0 else 10}
    first = figure("figure1")
    assert first.kernel == "linear"
    assert (min(first.values), max(first.values)) == (0.0, 0.5)
    assert [p.energy for p in first.panels] == [0.82, 0.82, 0.35]
    assert [p.n_components for p in first.panels] == [10, 10, 20]


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(InputError, match="no dataset 'DS999' in the paper; it has"):
        dataset("DS999")
    with pytest.raises(InputError, match="no figure 'figure3'; the paper has figure1"):
        figure("figure3")
