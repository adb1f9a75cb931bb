"""Shrinkage on Raider's images: all 35 ways of halving the 8 runs, both directions.

Two subjects are left out at a time; the classifier is the package's default. The
rows of the paper's GDM, RHA, SRM and HA go through the package's own evaluation; the
rows of the shrinkage model through the same folds and classifier with the functions of
``brainweave.aligners.gdm.ridge``.

Run with ``python benchmarks/raider_splits.py FOLDER [ROW ...]``.
"""

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from brainweave import (
    GDM,
    SRM,
    Hyperalignment,
    PaperGDM,
    RegularizedHyperalignment,
)
from brainweave.aligners.gdm.eigenproblem import Solution, apply_graph
from brainweave.aligners.gdm.joint import JointRidge
from brainweave.aligners.gdm.ridge import (
    amplitude,
    common_scale,
    solve_per_subject,
    solve_shrinkage,
)
from brainweave.aligners.gdm.smoother import GramSmoother, mean_eigenvalue
from brainweave.aligners.gdm.strength import GRID, block_criterion
from brainweave.basis.reliability import (
    analysis_of_variance,
    reliability_scale,
    repeated_groups,
)
from brainweave.evaluation.classifiers import Task, make_classifier, run_task
from brainweave.evaluation.evaluate import between_subject_classification
from brainweave.evaluation.splits import split_study, subject_folds
from brainweave.graphs.builders import Graph, GroupTerm, weigh_groups
from brainweave.study.study import Study

sys.path.insert(0, str(Path(__file__).parents[1]))
from reproduction.real import load_raider_images

LEAVE_OUT = 2


@dataclass(frozen=True)
class Shrinkage:
    """One way to fit, as the rows of the table differ."""

    n_components: int
    reliable: bool = False
    labels: float = 1.0
    time: float = 0.0
    constraint: str = "global"
    scale: str = "agreement"
    rho: float | str | None = None  # "own": one for each subject
    tried: str = ""  # an idea of docs/gdm.md that is no option of the package


@dataclass(frozen=True)
class Half:
    """The aligning half of every subject, and the kernel of the scored half to it."""

    grams: list[Any]
    cross: list[Any]
    codes: Any  # of the categories, the same for all subjects
    runs: Any
    scored: Any


def halves_of(study: Study, chosen: tuple[int, ...], reliable: bool) -> Iterator[Half]:
    labels, runs = np.asarray(study[0].labels), np.asarray(study[0].runs)
    codes = np.unique(labels, return_inverse=True)[1]
    numbers = np.unique(runs, return_inverse=True)[1]
    first = np.isin(numbers, chosen)
    data = [np.asarray(s.data(), np.float64) for s in study]
    for rows in (first, ~first):
        grams, cross = [], []
        for x in data:
            mean, scale = x[rows].mean(axis=0), x[rows].std(axis=0)
            groups = repeated_groups(codes[rows]) if reliable else None
            if groups is not None:
                squares = analysis_of_variance(x[rows], groups)
                scale = reliability_scale(*squares, groups)
            a, b = (x[rows] - mean) / scale, (x[~rows] - mean) / scale
            grams.append(a @ a.T)
            cross.append(b @ a.T)
        yield Half(grams, cross, codes[rows], numbers[rows], codes[~rows])


def features_of(model: Shrinkage, half: Half, who: list[int]) -> list[Any]:
    """Fit on some subjects; all others join; map all scored samples."""
    n, m = len(half.codes), len(who)
    grams = [half.grams[i] for i in who]
    if model.tried == "averaged strengths":  # the chosen one, a third, and three times
        rho = rho_of(grams, half)
        ones = [replace(model, tried="", rho=rho * by) for by in (1 / 3, 1, 3)]
        each = [features_of(one, half, who) for one in ones]
        return [np.concatenate(f, axis=1) for f in zip(*each, strict=True)]
    if model.rho == "own":
        rhos = [rho_of([gram], half) for gram in half.grams]
    else:
        rho = rho_of(grams, half) if model.rho is None else float(model.rho)
        rhos = [rho] * len(half.grams)
    everyone = [
        GramSmoother(gram, rho * mean_eigenvalue(gram))
        for gram, rho in zip(half.grams, rhos, strict=True)
    ]
    smoothers = [everyone[i] for i in who]
    graph = graph_of(model, half.codes, m)
    k = model.n_components
    if model.tried == "between subjects only":
        graph = between_subjects(graph)
    if model.tried == "learned affinity":
        graph = learned(graph, smoothers)
    if model.tried == "subjects by reliability":
        strength = [float(np.max(criterion_of(g, half))) for g in grams]
        fit = weighed(smoothers, graph, k, np.maximum(strength, 0.0))
    else:
        fit = solve_shrinkage(JointRidge(smoothers), graph, k)
    if model.constraint == "subject":
        fit = solve_per_subject(JointRidge(smoothers), graph, fit)
    target = apply_graph(graph, fit.template)[:n]  # all see what the first sees
    mu = fit.eigenvalues[: target.shape[1]]
    spread = mu / mu[0] if model.scale == "agreement" else np.ones_like(mu)
    scale = common_scale(fit.features, [target] * m, mu, spread)
    mapped = []
    for i, smoother in enumerate(everyone):
        mixing, features = smoother.regress(target)
        if i in who:
            mixing, features = (of[who.index(i)] for of in (fit.maps, fit.features))
        size = amplitude(features, target, mu)
        mapped.append(half.cross[i] @ (mixing * size * scale))
    return mapped


def rho_of(grams: list[Any], half: Half) -> float:
    """Choose the strength by leaving out runs of these subjects."""
    found = [c for c in (criterion_of(g, half) for g in grams) if c is not None]
    return GRID[int(np.mean(found, axis=0).argmax())] if found else 1.0


def criterion_of(gram: Any, half: Half) -> Any:
    return block_criterion(GramSmoother(gram), half.codes, runs=half.runs)


def between_subjects(graph: Graph) -> Graph:
    """Take the edges within subjects away: a term of negative weights for them."""
    terms = list(graph.groups)
    for term in graph.groups:
        size, m = len(term.names), len(graph.lengths)
        own = np.repeat(np.arange(m), graph.lengths)
        affinity = -np.kron(np.eye(m), term.affinity)
        terms.append(
            GroupTerm(term.codes + size * own, affinity, tuple(range(m * size)))
        )
    return Graph(graph.lengths, tuple(terms))


def learned(graph: Graph, smoothers: list[Any], rounds: int = 3) -> Graph:
    """Let categories belong together as far as their shared features are alike."""
    labels, *others = graph.groups
    n, size = np.diag(labels.affinity), len(labels.names)
    for _ in range(rounds):
        fit = solve_shrinkage(JointRidge(smoothers), graph, size - 1)
        scores = np.asarray(labels.membership().T @ fit.template) * n[:, None]
        scores *= fit.eigenvalues[: scores.shape[1]] / fit.eigenvalues[0]
        alike = np.corrcoef(scores)
        alike = np.where(np.eye(size) > 0, 1.0, np.maximum(alike, 0.0))
        affinity = np.sqrt(np.outer(n, n)) * alike
        affinity = (affinity + affinity.T) / 2
        graph = Graph(
            graph.lengths, (GroupTerm(labels.codes, affinity, labels.names), *others)
        )
    return graph


def weighed(smoothers: list[Any], graph: Graph, k: int, weights: Any) -> Solution:
    """Solve with subjects that count as much as their own samples repeat."""
    weights = weights / weights.mean()
    (term,) = graph.groups
    U = term.membership() @ np.sqrt(term.affinity)
    parts = [U[rows] for rows in graph.slices()]
    smooth = [s.smooth(u) for s, u in zip(smoothers, parts, strict=True)]
    P = sum(w * u.T @ z for w, u, z in zip(weights, parts, smooth, strict=True))
    mu, q = np.linalg.eigh((P + P.T) / 2)
    mu, q = mu[::-1][: k + 1], q[:, ::-1][:, :k]
    pairs = list(zip(smoothers, parts, strict=True))
    found = [s.regress(u @ q / np.sqrt(mu[:k])) for s, u in pairs]
    maps, features = map(list, zip(*found, strict=True))
    weighted = [w * f for w, f in zip(weights, features, strict=True)]
    template = np.concatenate(weighted) / mu[:k]
    return Solution(mu, mu, float(mu[0]), maps, features, template, "weighed")


def graph_of(model: Shrinkage, codes: Any, m: int) -> Graph:
    n, terms, how = len(codes), [], []
    c = int(codes.max()) + 1
    if model.labels:
        affinity = model.labels * np.eye(c)
        terms.append(GroupTerm(np.tile(codes, m), affinity, tuple(range(c))))
        how.append("groups")
    if model.time:
        ids, affinity = np.tile(np.arange(n), m), model.time * np.eye(n)
        terms.append(GroupTerm(ids, affinity, tuple(range(n))))
        how.append("subjects")
    return weigh_groups(Graph((n,) * m, tuple(terms)), how)


def accuracies(
    study: Study, chosen: tuple[int, ...], model: Shrinkage
) -> tuple[Any, Any]:
    """Accuracy of every subject under both protocols, for one way of halving."""
    everyone = list(range(len(study)))
    folds = subject_folds(len(study), LEAVE_OUT)
    out = np.zeros((2, 2, len(study)))
    for direction, half in enumerate(halves_of(study, chosen, model.reliable)):
        joint = features_of(model, half, everyone)
        for test in folds:
            train = [i for i in everyone if i not in test]
            held = features_of(model, half, train)
            for protocol, features in enumerate((joint, held)):
                task = Task(
                    np.concatenate([features[i] for i in train]),
                    np.concatenate([features[i] for i in test]),
                    [half.scored] * len(train),
                    [half.scored] * len(test),
                )
                predicted, _ = run_task(task.of_unit_size(), make_classifier())
                hits = predicted.reshape(len(test), -1) == half.scored
                out[protocol, direction, test] = hits.mean(axis=1)
    return out.mean(axis=1)[0], out.mean(axis=1)[1]


def packaged(study: Study, chosen: tuple[int, ...], aligner: Any) -> tuple[Any, Any]:
    """Accuracy by the package's own evaluation; one value for each two subjects."""
    runs = np.unique(np.asarray(study[0].runs), return_inverse=True)[1]
    mask = np.isin(runs, chosen)
    split = split_study(study, halves=[mask] * len(study))
    both = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for protocol in ("joint", "held-out"):
            result = between_subject_classification(
                aligner, split, leave_out=LEAVE_OUT, protocol=protocol, n_jobs=1
            )
            both.append(result.scores.reshape(2, -1).mean(axis=0))
    return both[0], both[1]


ROWS: dict[str, Any] = {
    "paper's GDM, K = 10": PaperGDM(10, energy=0.82),
    "paper's GDM, K = 6": PaperGDM(6, energy=0.82),
    "RHA, K = 10": RegularizedHyperalignment(10),
    "SRM, K = 10": SRM(10, random_state=0),
    "HA, K = 10": Hyperalignment(10),
    "shrinkage, labels, K = 6": Shrinkage(6),
    "+ reliable voxels": Shrinkage(6, reliable=True),
    "+ labels and time, K = 20": Shrinkage(20, reliable=True, time=1.0),
    "constraint of each subject, K = 6": Shrinkage(
        6, reliable=True, constraint="subject"
    ),
    "a strength of each subject, K = 6": Shrinkage(6, reliable=True, rho="own"),
    "features of unit variance, K = 6": Shrinkage(6, reliable=True, scale="unit"),
    "the same, labels and time, K = 20": Shrinkage(
        20, reliable=True, time=1.0, scale="unit"
    ),
    "constraint of each subject, labels and time, K = 20": Shrinkage(
        20, reliable=True, time=1.0, constraint="subject"
    ),
    "edges between subjects only, K = 6": Shrinkage(
        6, reliable=True, tried="between subjects only"
    ),
    "edges between subjects only, labels and time, K = 20": Shrinkage(
        20, reliable=True, time=1.0, tried="between subjects only"
    ),
    "subjects weighed by reliability, K = 6": Shrinkage(
        6, reliable=True, tried="subjects by reliability"
    ),
    "learned affinity of categories, K = 6": Shrinkage(
        6, reliable=True, tried="learned affinity"
    ),
    "averaged over strengths, K = 6": Shrinkage(
        6, reliable=True, tried="averaged strengths"
    ),
    "averaged over strengths, labels and time, K = 20": Shrinkage(
        20, reliable=True, time=1.0, tried="averaged strengths"
    ),
    "Gaussian kernel, K = 6": GDM(6, standardize="reliability", kernel="gaussian"),
}


def splits() -> list[tuple[int, ...]]:
    """All ways of halving 8 runs; both directions are one of them."""
    return [c for c in itertools.combinations(range(8), 4) if 0 in c]


def run_row(study: Study, model: Any, n_jobs: int = 2) -> Any:
    """Return accuracies in per cent: (2 protocols, 35 splits, subjects or pairs)."""
    one: Callable[..., Any] = accuracies if isinstance(model, Shrinkage) else packaged
    parts = Parallel(n_jobs=n_jobs)(delayed(one)(study, c, model) for c in splits())
    return 100 * np.array(parts).swapaxes(0, 1)


def main(folder: str, names: list[str]) -> None:
    study = load_raider_images(folder)
    print("| Raider, 35 splits | joint | held-out |\n|---|---|---|")
    for name in names or list(ROWS):
        joint, held = run_row(study, ROWS[name])
        cells = [
            f"{p.mean():.1f} ± {p.mean(axis=1).std(ddof=1) / np.sqrt(len(p)):.1f}"
            for p in (joint, held)
        ]
        print(f"| {name} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
