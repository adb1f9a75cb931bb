"""People who saw different films, aligned by what the films show: who wins when.

python benchmarks/features.py prints a table. Every person sees a film of their own,
described by embeddings; all see one more, in which segments of 9 samples of each person
are matched with the mean of the others. GDM with feature_graph, as it is by default,
beside the plain way: ridge regression of each person's voxels on the features, and the
principal components of what it predicts. About two minutes on one core; --quick, ten
seconds.
"""

import argparse
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from brainweave import GDM, feature_graph, time_segment_matching

COMPONENTS = 10
SEED, N_SEEDS = 100, 8  # settings were chosen on seeds 0 to 3
ALPHAS = np.geomspace(1e-2, 1e2, 9)  # in units of the mean eigenvalue, about
#: What the cells of the table differ in.
CELLS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "strong signal": {"signal": 0.3},
    "weak signal": {"signal": 0.1},
    "short films": {"n_samples": 100},
    "five of eight subjects are noisier": {"noisy": 5, "signal": 0.25},
    "brains respond to 5 of 40 directions": {"n_known": 5, "signal": 0.3},
    "features of equal variance": {"decay": 0.0, "signal": 0.05},
    "brains respond to the directions of largest variance": {
        "known_first": True,
        "signal": 0.08,
    },
}


class Films(NamedTuple):
    """Samples and features of each person's film, and samples of the common one."""

    X: list[Any]
    F: list[Any]
    common: list[Any]


def simulate(
    seed: int,
    *,
    n_people: int = 8,
    n_samples: int = 200,
    n_voxels: int = 300,
    n_features: int = 40,
    n_known: int = 15,
    decay: float = 1.0,
    signal: float = 0.15,
    noisy: int = 0,
    known_first: bool = False,
) -> Films:
    """Simulate embeddings with a spectrum, and brains that know some directions."""
    rng = np.random.default_rng(seed)
    spectrum = np.arange(1, n_features + 1) ** (-decay / 2)
    mixing = np.linalg.qr(rng.normal(size=(n_features, n_features)))[0]
    known = rng.normal(size=(n_features, n_known)) / np.sqrt(n_features)
    if known_first:  # the directions of largest variance, in proportion to it
        known = mixing.T[:, :n_known]

    def film() -> Any:
        slow = rng.normal(size=(n_samples + 4, n_features))
        slow = sum(slow[k : k + n_samples] for k in range(5)) / np.sqrt(5)
        return slow * spectrum @ mixing

    shown = film()
    found = Films([], [], [])
    for i in range(n_people):
        maps = rng.normal(size=(n_known, n_voxels))
        own = film()
        size = 3.0 if i < noisy else 1.0
        for F, out in ((own, found.X), (shown, found.common)):
            noise = rng.normal(size=(n_samples, n_voxels))
            out.append(signal * (F @ known) @ maps + size * noise)
        found.F.append(own)
    return found


def by_ridge(films: Films, *, whiten: bool = False) -> list[Any]:
    """Predict features by each person's voxels; keep their principal components."""
    models, predicted, wanted = [], [], films.F
    if whiten:
        root = np.linalg.cholesky(feature_graph(films.F).groups[0].affinity)
        wanted = [F @ root for F in films.F]
    for X, F in zip(films.X, wanted, strict=True):
        model = make_pipeline(StandardScaler(), Ridge())
        alphas = ALPHAS * X.shape[1]
        scores = [_held_out_score(model, a, X, F) for a in alphas]
        best = alphas[int(np.argmax(scores))]
        models.append(model.set_params(ridge__alpha=best).fit(X, F))
        predicted.append(models[-1].predict(X))
    axes = PCA(COMPONENTS).fit(np.concatenate(predicted))
    pairs = zip(models, films.common, strict=True)
    return [axes.transform(model.predict(X)) for model, X in pairs]


def _held_out_score(model: Any, alpha: float, X: Any, F: Any) -> float:
    """Predict quarters of the film from the others, each centred, as GDM does."""
    model.set_params(ridge__alpha=alpha)
    predicted = cross_val_predict(model, X, F, cv=KFold(4))
    parts = [rows for _, rows in KFold(4).split(X)]
    P, T = (
        np.concatenate([values[rows] - values[rows].mean(axis=0) for rows in parts])
        for values in (predicted, F)
    )
    return float(np.corrcoef(P.ravel(), T.ravel())[0, 1])


def scores(films: Films) -> Iterator[tuple[str, float]]:
    """Yield the share of segments that each way finds."""
    ways: dict[str, Any] = {
        "GDM, feature_graph": GDM(COMPONENTS, graph=feature_graph),
        "... n_components='auto'": GDM(graph=feature_graph),
        "... whiten=False": GDM(COMPONENTS, graph=partial(feature_graph, whiten=False)),
    }
    for name, gdm in ways.items():
        shared = gdm.fit(films.X, films.F).transform(films.common)
        yield name, _matched(shared, standardize=False)
    for name, whiten in (("ridge + PCA", False), ("... whitened", True)):
        shared = by_ridge(films, whiten=whiten)
        # whichever is better for it
        yield name, max(_matched(shared, standardize=s) for s in (True, False))


def _matched(shared: list[Any], *, standardize: bool) -> float:
    return float(time_segment_matching(shared, standardize=standardize).scores.mean())


def table_of(seeds: Sequence[int], cells: Sequence[str] = tuple(CELLS)) -> pd.DataFrame:
    """Return percentages of segments, a row per study, with a column per way."""
    rows = [
        {"films": cell, "seed": seed, **dict(scores(simulate(seed, **CELLS[cell])))}
        for cell in cells
        for seed in seeds
    ]
    return 100 * pd.DataFrame(rows).set_index(["films", "seed"])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="one study per row")
    n = 1 if parser.parse_args().quick else N_SEEDS
    warnings.simplefilter("ignore")  # of components that are not checked
    table = table_of(range(SEED, SEED + n))
    ahead = table["GDM, feature_graph"] - table["ridge + PCA"]
    by_film = ahead.groupby(level="films", sort=False)
    means = table.groupby(level="films", sort=False).mean()
    means["GDM - ridge"], means["error"] = by_film.mean(), by_film.sem()
    print(means.round(1).to_string())


if __name__ == "__main__":
    main()
