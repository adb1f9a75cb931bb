"""What goes is kept for a while, and says so where it is used."""

import pytest

from brainweave._warnings import deprecated_name, deprecated_parameter


@deprecated_parameter("n_features", "n_components", goes_in="0.4")
def fit(X, n_components=1):
    return X * n_components


def test_an_old_parameter_warns_at_the_call_and_works():
    with pytest.warns(FutureWarning, match="n_features of fit is now called") as caught:
        assert fit(2, n_features=3) == 6
    assert caught[0].filename == __file__
    assert fit(2, n_components=3) == fit(2, 3) == 6
    with pytest.raises(TypeError, match="got 'n_components' twice"):
        fit(2, n_components=3, n_features=3)


def test_an_old_name_warns_at_the_call_and_works():
    align = deprecated_name("align", fit, goes_in="0.4")
    with pytest.warns(FutureWarning, match="align is now called fit; .* 0.4") as caught:
        assert align(2, n_components=2) == 4
    assert caught[0].filename == __file__


def test_a_parameter_that_is_not_there_is_refused_when_it_is_declared():
    with pytest.raises(TypeError, match="fit has no parameter 'rank'"):
        deprecated_parameter("k", "rank", goes_in="0.4")(fit)
