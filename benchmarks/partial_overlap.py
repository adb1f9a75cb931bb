"""Studies that overlap in part: who saw parts 1 and 2, and who 2 and 3.

A recording is cut into thirds. "groups": half the subjects saw parts 1 and 2, half 2
and 3. "ring": thirds of them saw 1 and 2, 2 and 3, 3 and 1, so that no part is shared
by all. Then time segments of the part that a subject did not see are sought in the
average of the *other* groups of subjects. Every part takes every role once. For
comparison: what all saw (the intersection), and the complete study, where all saw the
same two parts.

Run with ``python benchmarks/partial_overlap.py {pieman FOLDER | simulated}``.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from brainweave import GDM, RegularizedHyperalignment, simulate_study, time_graph
from brainweave.aligners.shrinkage import scale_features, solve_shrinkage
from brainweave.aligners.smoother import GramSmoother, Smoother, mean_eigenvalue
from brainweave.aligners.strength import covariance_strength
from brainweave.aligners.subject_constraint import solve_per_subject
from brainweave.graphs import weigh_groups
from brainweave.metrics import match_segments
from brainweave.paper.real import load_pieman

WINDOW = 9
DESIGNS = {
    "groups": [(0, 1), (1, 2)],
    "ring": [(0, 1), (1, 2), (2, 0)],
    "complete": [(0, 1), (0, 1)],
    "complete, 3 groups": [(0, 1), (0, 1), (0, 1)],
    "intersection": [(1,), (1,)],
}
Fit = Callable[[list[Any], list[Any]], list[Any]]


def standardized(x: Any) -> tuple[Any, Any, Any]:
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 0, scale, np.inf)
    return (x - mean) / scale, mean, scale


def shrinkage(
    k: int,
    rho: float | None = None,
    constraint: str = "global",
    *,
    balance: str = "subjects",
    scale: str = "agreement",
    rounds: int = 3,
) -> Fit:
    """Return what fits voxel weights: aligning samples and ids to one map a subject."""

    def fit(X: list[Any], ids: list[Any]) -> list[Any]:
        Z = [standardized(x) for x in X]
        grams = [z @ z.T for z, _, _ in Z]
        ridge = rho
        if ridge is None:  # nothing repeats in a recording seen once
            voxels = [z.shape[1] for z, _, _ in Z]
            ridge = covariance_strength(grams, voxels, "ledoit-wolf")
        smoothers = [
            GramSmoother(gram, ridge * mean_eigenvalue(gram)) for gram in grams
        ]
        graph = weigh_groups(time_graph(ids), balance)
        found = solve_shrinkage(smoothers, graph, k, n_jobs=1)
        mixing, mu = found.maps, found.eigenvalues
        if constraint == "subject":
            alike = weigh_groups(time_graph(ids), "groups")
            better = solve_per_subject(smoothers, alike, found, max_iter=rounds)
            mixing, mu = better.maps, better.eigenvalues
        elif constraint == "alternating":
            mixing, mu = alternate(smoothers, graph, found, rounds)
        if scale != "plain":
            by = mu if scale == "agreement" else None
            mixing = [
                scale_features(m, s.features(m), by)
                for s, m in zip(smoothers, mixing, strict=True)
            ]
        return [
            (mean, (z.T @ m) / sd[:, None])
            for (z, mean, sd), m in zip(Z, mixing, strict=True)
        ]

    return fit


def alternate(
    smoothers: list[Smoother], graph: Any, start: Any, rounds: int
) -> tuple[list[Any], Any]:
    """Whiten, average per group over who has it, regress; for comparison."""
    (term,), rows = graph.groups, graph.slices()
    members = [term.membership(r) for r in rows]
    counts = sum(np.asarray(Z.sum(axis=0)).ravel() > 0 for Z in members)
    mixing = start.maps
    for _ in range(rounds):
        white = []
        for s, m in zip(smoothers, mixing, strict=True):
            left, _, right = np.linalg.svd(s.features(m), full_matrices=False)
            white.append(left @ right)
        total = sum(Z.T @ y for Z, y in zip(members, white, strict=True))
        template = total / np.maximum(counts, 1)[:, None]
        mixing = [
            s.coefficients(Z @ template)
            for s, Z in zip(smoothers, members, strict=True)
        ]
    features = np.concatenate(
        [s.features(m) for s, m in zip(smoothers, mixing, strict=True)]
    )
    values, axes = np.linalg.eigh(features.T @ features)
    return [m @ axes[:, ::-1] for m in mixing], values[::-1]


def packaged(aligner: Any) -> Fit:
    """Return the same of an aligner of the package."""

    def fit(X: list[Any], ids: list[Any]) -> list[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            named = isinstance(aligner, GDM)
            maps = aligner.fit(X, ids if named else None).maps_
        return maps

    return fit


def features(fitted: Any, x: Any) -> Any:
    if isinstance(fitted, tuple):
        mean, weights = fitted
        return (x - mean) @ weights
    return np.asarray(fitted.transform(x))


def score(parts: list[list[Any]], design: str, fit: Fit) -> Any:
    """Return the share of segments matched between groups, for each subject.

    ``parts[i][p]`` are the samples of part p of subject i.
    """
    groups = DESIGNS[design]
    n, n_parts = len(parts), 3
    belongs = np.arange(n) % len(groups)
    scores: list[list[float]] = [[] for _ in range(n)]
    for turn in range(n_parts):
        order = [(turn + p) % n_parts for p in range(n_parts)]
        X, ids = [], []
        for i in range(n):
            seen = [order[p] for p in groups[belongs[i]]]
            X.append(np.concatenate([parts[i][p] for p in seen]))
            ids.append(
                np.concatenate([1000 * p + np.arange(len(parts[i][p])) for p in seen])
            )
        maps = fit(X, ids)
        for p in range(n_parts):
            mapped = np.array(
                [features(m, x[order[p]]) for m, x in zip(maps, parts, strict=True)]
            )
            for i in range(n):
                if p in groups[belongs[i]]:
                    continue
                others = mapped[belongs != belongs[i]].mean(axis=0)
                scores[i].append(match_segments(mapped[i], others, window=WINDOW))
    return np.array([np.mean(s) for s in scores])


def pieman(folder: str, seed: int = 0) -> list[list[Any]]:
    """Cut the story into thirds, with the factors of each subject shuffled."""
    rng = np.random.default_rng(seed)
    parts = []
    for subject in load_pieman(folder):
        x = np.asarray(subject.data(), np.float64)
        parts.append(np.split(x[:, rng.permutation(x.shape[1])], 3))
    return parts


def simulated(seed: int = 0) -> list[list[Any]]:
    """Simulate three movies, 18 subjects whose voxels do not correspond."""
    study = simulate_study(
        n_subjects=18,
        design="movie",
        n_runs=3,
        repetitions=1,
        n_voxels=(200, 300),
        signal=1.6,
        structured_noise=5.0,
        local_noise=1.0,
        random_state=seed,
    )
    parts = []
    for s in study:
        x, runs = np.asarray(s.data(), np.float64), np.asarray(s.runs)
        parts.append([x[runs == r] for r in np.unique(runs)])
    return parts


def main(parts: list[list[Any]], k: int = 10) -> None:
    rows = {
        "paper's GDM, energy .82": packaged(GDM(k, energy=0.82, graph="time")),
        "shrinkage": shrinkage(k),
        "alternation, 5 rounds": shrinkage(k, None, "alternating", rounds=5),
        "constraint of each subject": shrinkage(k, None, "subject"),
        "the same, 20 rounds": shrinkage(k, None, "subject", rounds=20),
    }
    designs = ("groups", "ring", "complete", "intersection")
    print("| |", " | ".join(designs), "|\n|---|---|---|---|---|")
    for name, fit in rows.items():
        cells = [score(parts, d, fit) for d in designs]
        shown = [f"{c.mean():.3f} ± {c.std() / np.sqrt(len(c)):.3f}" for c in cells]
        print(f"| {name} |", " | ".join(shown), "|", flush=True)
    rha = score(parts, "intersection", packaged(RegularizedHyperalignment(k)))
    print(f"| RHA | | | | {rha.mean():.3f} |")


if __name__ == "__main__":
    main(pieman(sys.argv[2]) if sys.argv[1] == "pieman" else simulated())
