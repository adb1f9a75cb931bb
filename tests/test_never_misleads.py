"""Stories of users who were misled, or left with nothing; none may happen again.

Each test is one way to publish something false, or to fail on an ordinary study, told
as the user met it. The modules' own tests look closer.
"""

import numpy as np
import pytest

# -- the solver ------------------------------------------------------------------------


def test_a_film_of_more_than_400_time_points_is_aligned():
    """It crashed: with equal degrees the shift of the iteration was zero."""
    from brainweave import GDM

    rng = np.random.default_rng(0)
    film = rng.normal(size=(450, 8))
    X = [film @ rng.normal(size=(8, 60)) + rng.normal(size=(450, 60)) for _ in range(9)]
    results = [
        GDM(3, energy=1.0, graph="time", solver=solver).fit(X)
        for solver in ("auto", "closed", "iterative", "dense")
    ]
    for model in results:
        np.testing.assert_allclose(
            model.eigenvalues_, results[-1].eigenvalues_, rtol=1e-9
        )


@pytest.mark.parametrize("seed", [3, 5])
def test_an_eigenvalue_that_is_there_eight_times_is_found_eight_times(seed):
    """The iteration found it once or twice, then the next ones, without a word."""
    from brainweave import GDM
    from brainweave.exceptions import UniquenessWarning

    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(20, 2.0))
    y = [rng.choice(20, size=100, p=shares) for _ in range(12)]
    X = [rng.normal(size=(100, 150)) for _ in y]
    dense = GDM(10, energy=1.0, solver="dense").fit(X, y)
    auto = GDM(10, energy=1.0).fit(X, y)
    assert auto.solver_ == "iterative"
    np.testing.assert_allclose(auto.eigenvalues_, dense.eigenvalues_, rtol=1e-9)
    assert auto.n_informative_ == dense.n_informative_
    with pytest.warns(UniquenessWarning):  # the cut goes through the eight
        GDM(4, energy=1.0).fit(X, y)


def test_a_new_subject_without_a_category_does_not_depend_on_the_last_bit():
    """Scaling its data by 1 + 1e-12 moved its features by 3.7."""
    from brainweave import GDM, simulate_study
    from brainweave.exceptions import UndeterminedWarning

    study = simulate_study(
        n_subjects=6, categories=4, missing_categories=1, random_state=1
    )
    lacking = next(s for s in study if len(set(s.labels)) == 3)
    others = [s for s in study if s is not lacking]
    gdm = GDM(3).fit([s.data() for s in others], [s.labels for s in others])
    data = lacking.data().astype(np.float64)
    with pytest.warns(UndeterminedWarning, match="features are zero in the others"):
        once = gdm.fit_new_subject(data, lacking.labels)
    with pytest.warns(UndeterminedWarning):
        again = gdm.fit_new_subject(data * (1 + 1e-12), lacking.labels)
    assert once.n_undetermined == 1
    np.testing.assert_allclose(again.transform(data), once.transform(data), atol=1e-8)


def test_as_many_components_as_dimensions_do_not_pass_as_alignment():
    """Every subject then has features of its own; accuracy is at chance."""
    from brainweave import GDM
    from brainweave.exceptions import SeparateSubjectsWarning

    rng = np.random.default_rng(0)
    y = [rng.permutation(np.arange(40) % 4) for _ in range(4)]
    X = [rng.normal(size=(4, 80))[k] + rng.normal(size=(40, 80)) for k in y]
    everything = sum(b.n_kept for b in GDM(3, energy=0.5).fit(X, y).bases_)
    with pytest.warns(SeparateSubjectsWarning, match="belong to single subjects"):
        GDM(everything, energy=0.5).fit(X, y)


# -- labels, subjects and their order --------------------------------------------------


# -- voxels and files in memory --------------------------------------------------------


# -- evaluations and their store -------------------------------------------------------


# -- components and the report ---------------------------------------------------------


# -- the command line and the BIDS App -------------------------------------------------


# -- files from elsewhere --------------------------------------------------------------
