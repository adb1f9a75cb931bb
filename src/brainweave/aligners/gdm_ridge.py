"""GDM with shrinkage: a ridge per subject in place of the cut, maps in closed form."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from brainweave._arrays import map_subjects
from brainweave._validation import one_per_subject
from brainweave.aligners.gdm_hard_cut import Found
from brainweave.aligners.graph_solver import overlap_of_covariances
from brainweave.aligners.shrinkage import (
    Smoother,
    is_semidefinite,
    scale_features,
    solve_shrinkage,
)
from brainweave.aligners.strength import (
    Strength,
    best_strength,
    block_criterion,
    covariance_strength,
)
from brainweave.aligners.subject_constraint import solve_per_subject
from brainweave.basis import SubjectBasis
from brainweave.exceptions import InputError
from brainweave.graphs import Graph, count_alike
from brainweave.linalg import flip_signs

Matrix = NDArray[np.float64]

CHOICES = ("auto", "ledoit-wolf", "oas")
CONSTRAINTS = ("global", "subject")
SCALES = ("agreement", "unit")
SEMIDEFINITE = ("linear", "gaussian", "quadratic")
MOST = 100  # components that "auto" looks at

# what each strength reaches in a subject does not depend on the others: folds share it
_CRITERIA: WeakKeyDictionary[SubjectBasis, dict[bytes, Matrix | None]] = (
    WeakKeyDictionary()
)


def choose_strengths(
    shrinkage: Any,
    bases: Sequence[SubjectBasis],
    graph: Graph,
    *,
    n_jobs: int | None,
    owner: str,
) -> tuple[list[float], str]:
    """Return rho of every subject, and how it was found.

    Parameters
    ----------
    shrinkage : "auto", "ledoit-wolf", "oas", float, or one per subject
        The parameter.
    bases : sequence of SubjectBasis
        Of the aligning samples.
    graph : Graph
        Whose first groups are what samples are to predict.
    n_jobs : int, optional
        Subjects worked on at the same time.
    owner : str
        Who asks, for messages.
    """
    if isinstance(shrinkage, str) and shrinkage not in CHOICES:
        raise InputError(
            f"shrinkage of {owner} must be a number, one per subject, or one of "
            f"{', '.join(map(repr, CHOICES))}; got {shrinkage!r}."
        )
    if not isinstance(shrinkage, str):
        given = one_per_subject("shrinkage", shrinkage, len(bases), owner=owner)
        return [_check_rho(rho, owner) for rho in given], "given"
    found: Strength | None = None
    if shrinkage == "auto" and graph.groups:
        codes = [graph.groups[0].codes[rows] for rows in graph.slices()]
        each = map_subjects(_criterion, list(bases), codes, n_jobs=n_jobs)
        found = best_strength(each)
    if found is None:
        how = "oas" if shrinkage == "oas" else "ledoit-wolf"
        voxels = [
            b.n_voxels - b.constant_voxels.size if b.kernel.name == "linear" else None
            for b in bases
        ]
        found = covariance_strength([b.gram for b in bases], voxels, how)
    return [found.rho] * len(bases), found.how


def _check_rho(rho: Any, owner: str) -> float:
    number = isinstance(rho, (int, float, np.number)) and not isinstance(rho, bool)
    if not number or not 0 < rho < np.inf:
        raise InputError(
            f"shrinkage of {owner} must be larger than 0 and finite, in units of a "
            f"subject's mean eigenvalue; got {rho!r}."
        )
    return float(rho)


def _criterion(basis: SubjectBasis, codes: NDArray[np.intp]) -> Matrix | None:
    known = _CRITERIA.setdefault(basis, {})
    key = codes.tobytes()
    if key not in known:
        known[key] = block_criterion(
            basis.gram, codes, semidefinite=basis.kernel.name in SEMIDEFINITE
        )
    return known[key]


def smoother_of(basis: SubjectBasis, rho: float) -> Smoother:
    """Return the ridge smoother of a basis, rho in units of its mean eigenvalue."""
    known = basis.kernel.name in SEMIDEFINITE
    # negative eigenvalues count as zero, also in the unit
    whole = known or is_semidefinite(basis.gram)
    trace = basis.power if whole else float(basis.spectrum.sum())
    strength = rho * trace / basis.n_samples
    if basis.uses_covariance:
        return Smoother(narrow=basis._narrow, strength=strength, name=basis.name)
    return Smoother(basis.gram, strength, semidefinite=known, name=basis.name)


class Ridge:
    """The closed form, and the constraint of each subject if it is asked for.

    Parameters
    ----------
    bases : list of SubjectBasis
        At full energy.
    graph : Graph
        Over all samples, its groups weighed.
    strengths : list of float
        Rho of every subject.
    constraint : {"global", "subject"}
        On all subjects together, or on each.
    scale : {"agreement", "unit"}
        The spread of the features.
    n_jobs : int, optional
        Subjects worked on at the same time.
    """

    def __init__(
        self,
        bases: list[SubjectBasis],
        graph: Graph,
        strengths: list[float],
        *,
        constraint: str,
        scale: str,
        n_jobs: int | None,
    ) -> None:
        self.graph, self.constraint, self.scale = graph, constraint, scale
        self.n_jobs = n_jobs
        self.dimensions = sum(
            b.n_voxels if b.uses_covariance else b.n_samples - 1 for b in bases
        )
        self.smoothers = map_subjects(smoother_of, bases, strengths, n_jobs=n_jobs)

    def most(self) -> int:
        """Return the number of components that there can be."""
        if self.graph.matrix is not None:
            return self.dimensions
        groups = sum(int(np.count_nonzero(term.counts)) for term in self.graph.groups)
        return min(self.dimensions, groups)

    def refusal(self, k: int) -> str:
        """Say why k components are too many."""
        return (
            f"n_components={k} is more than the {self.most()} that the graph has: one "
            "per group at most. Use fewer components, n_components='auto', or a graph "
            "of more groups, such as graph='labels+time'."
        )

    def solve(self, k: int) -> int:
        """Find k components; return how many of them gain from the edges."""
        self.solution = solve_shrinkage(
            self.smoothers, self.graph, k, n_jobs=self.n_jobs
        )
        return self.solution.n_informative(k)

    def features(self, k: int) -> list[Matrix]:
        """Return the first k features of the aligning samples."""
        return [f[:, :k] for f in self.solution.features]

    def found(self, k: int) -> Found:
        """Return the first k components, scaled, their signs fixed."""
        solution = self.solution
        unique, informative = solution.is_unique(k), solution.n_informative(k)
        route, mu = solution.route, solution.mu[:k]
        mixing = [m[:, :k] for m in solution.mixing]
        features = self.features(k)
        template = solution.template[:, :k]
        if self.constraint == "subject":
            alike = count_alike(self.graph)
            start = type(solution)(
                mu, mixing, solution.scores, features, template, route
            )
            better = solve_per_subject(self.smoothers, alike, start)
            mu, mixing, features = better.mu, better.mixing, better.features
            template, route = better.template, f"{route}, {better.route}"
        signs = flip_signs(np.concatenate(features))
        covariances = [
            f.T @ f + s.strength * (m.T @ f)
            for s, m, f in zip(self.smoothers, mixing, features, strict=True)
        ]
        spread = mu if self.scale == "agreement" else None
        return Found(
            maps=[
                scale_features(m * signs, f, spread)
                for m, f in zip(mixing, features, strict=True)
            ],
            eigenvalues=np.array(mu),
            n_informative=informative,
            is_unique=unique,
            route=route,
            template=template * signs,
            overlap=overlap_of_covariances(covariances, self.graph.lengths),
            dimensions=self.dimensions,
        )


def join_by_regression(
    basis: SubjectBasis, target: Matrix, *, rho: float, spread: Matrix
) -> tuple[Matrix, int]:
    """Return the mixing of a new subject, and how many dimensions are determined.

    Parameters
    ----------
    basis : SubjectBasis
        Of the new subject.
    target : ndarray of shape (n_samples, K)
        What each sample is regressed on: its edges, times the model's template.
    rho : float
        The ridge in units of the mean eigenvalue.
    spread : ndarray of shape (K,)
        What the features are scaled to.
    """
    smoother = smoother_of(basis, rho)
    centred = target - target.mean(axis=0)
    values = np.linalg.svd(centred, compute_uv=False)
    size = max(float(np.linalg.norm(target, 2)), 1e-300)
    mixing = smoother.coefficients(target)
    scaled = scale_features(mixing, smoother.features(mixing), spread)
    return scaled, int((values > 1e-9 * size).sum())
