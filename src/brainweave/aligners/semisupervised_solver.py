r"""Descent for a shared response and a classifier on it, in subjects' coordinates.

With :math:`U_i` the rows of subject i's coordinates that are locked in time,
:math:`Z_i` the labelled ones, orthonormal :math:`Q_i`, :math:`R` the shared response
and a multinomial logistic classifier :math:`(\theta, b)` with loss :math:`\ell`,

.. math:: (1 - \alpha) \sum_i \frac{1}{2n} \lVert U_i - R Q_i^\top \rVert_F^2
          + \frac{\alpha}{\gamma} \sum_i \frac{1}{m_i} \sum_j \ell(\theta^\top Q_i^\top
          z_{ij} + b, y_{ij}) + \frac12 \lVert \theta \rVert_F^2 .

On the manifold the first term is linear in :math:`Q_i`, and the loss is smooth, so with
:math:`\tau` large enough the objective is majorised at :math:`Q` by a linear function
whose minimum is the polar factor of :math:`\tau Q - \nabla`: no step can rise, and
:math:`\tau` is found by trial.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from brainweave.aligners.timelocked import Progress
from brainweave.linalg import polar

Matrix = NDArray[np.float64]
Codes = NDArray[np.intp]

INNER_STEPS = 10  # of each map, in each round
MOST_TRIALS = 60  # doublings of tau; far more than any data need


@dataclass
class Coordinates:
    """What one subject brings: rows locked in time, labelled rows, and its map."""

    locked: Matrix
    labelled: Matrix
    codes: Codes
    Q: Matrix = field(default_factory=lambda: np.empty((0, 0)))
    tau: float = 0.0  # curvature that the last step needed

    @property
    def n_labelled(self) -> int:
        """Number of labelled samples."""
        return len(self.codes)


@dataclass(frozen=True)
class Classifier:
    """Multinomial logistic classifier: ``features @ theta + bias`` are its logits."""

    theta: Matrix
    bias: Matrix

    def log_probabilities(self, features: Matrix) -> Matrix:
        """Return the log-probability of each class, (n_samples, n_classes)."""
        logits = features @ self.theta + self.bias
        logits -= logits.max(axis=1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return np.asarray(logits)


@dataclass(frozen=True)
class Balance:
    """How the terms weigh: (1 - alpha) / n for the rows, alpha / gamma for labels."""

    alpha: float
    gamma: float

    def rows(self, n_locked: int) -> float:
        """Weight of half the squared distance from the shared response."""
        return (1 - self.alpha) / n_locked

    @property
    def labels(self) -> float:
        """Weight of a subject's mean loss."""
        return self.alpha / self.gamma


def step_map(
    subject: Coordinates,
    R: Matrix,
    classifier: Classifier,
    balance: Balance,
    *,
    n_steps: int = INNER_STEPS,
    tol: float = 1e-10,
) -> list[float]:
    """Descend over one subject's map, in place; return its values but for constants."""
    weight = balance.rows(len(R)) if len(subject.locked) else 0.0
    pull = weight * (subject.locked.T @ R) if weight else np.zeros_like(subject.Q)
    loss_weight = balance.labels / max(subject.n_labelled, 1)

    def evaluate(Q: Matrix) -> tuple[float, Matrix]:
        value, gradient = -float((pull * Q).sum()), -pull
        if subject.n_labelled:
            rows = np.arange(subject.n_labelled)
            log_p = classifier.log_probabilities(subject.labelled @ Q)
            value -= loss_weight * float(log_p[rows, subject.codes].sum())
            error = np.exp(log_p)
            error[rows, subject.codes] -= 1
            slope = subject.labelled.T @ (error @ classifier.theta.T)
            gradient = gradient + loss_weight * slope
        return value, gradient

    value, gradient = evaluate(subject.Q)
    history = [value]
    for _ in range(n_steps):
        found = _descend_once(subject, value, gradient, evaluate)
        if found is None:
            break
        subject.Q, value, gradient = found
        history.append(value)
        if history[-2] - value <= tol * max(abs(value), 1e-300):
            break
    return history


def _descend_once(
    subject: Coordinates,
    value: float,
    gradient: Matrix,
    evaluate: Callable[[Matrix], tuple[float, Matrix]],
) -> tuple[Matrix, float, Matrix] | None:
    """Find a curvature tau that majorises, and step; None if nothing is gained."""
    subject.tau /= 2  # the smaller, the longer the step
    scale = float(np.linalg.norm(gradient, 2)) or 1.0
    for _ in range(MOST_TRIALS):
        Q = polar(subject.tau * subject.Q - gradient)
        new_value, new_gradient = evaluate(Q)
        change = Q - subject.Q
        bound = value + float((gradient * change).sum())
        bound += subject.tau / 2 * float((change * change).sum())
        if new_value <= min(bound + 1e-14 * abs(value), value):
            return Q, new_value, new_gradient
        subject.tau = max(2 * subject.tau, 1e-3 * scale)
    return None


def fit_classifier(
    subjects: list[Coordinates], balance: Balance, before: Classifier
) -> Classifier:
    """Return the best classifier of the labelled features: a convex problem."""
    features = np.concatenate([s.labelled @ s.Q for s in subjects])
    codes = np.concatenate([s.codes for s in subjects])
    weights = np.concatenate(
        [np.full(s.n_labelled, balance.labels / max(s.n_labelled, 1)) for s in subjects]
    )
    k, n_classes = before.theta.shape
    rows = np.arange(len(codes))

    def unpack(flat: Matrix) -> Classifier:
        return Classifier(
            flat[: k * n_classes].reshape(k, n_classes), flat[-n_classes:]
        )

    def evaluate(flat: Matrix) -> tuple[float, Matrix]:
        now = unpack(flat)
        log_p = now.log_probabilities(features)
        value = -weights @ log_p[rows, codes] + (now.theta**2).sum() / 2
        error = np.exp(log_p)
        error[rows, codes] -= 1
        error *= weights[:, None]
        slope = features.T @ error + now.theta
        return float(value), np.concatenate([slope.ravel(), error.sum(axis=0)])

    start = np.concatenate([before.theta.ravel(), before.bias])
    result = scipy.optimize.minimize(
        evaluate,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500, "ftol": 1e-13, "gtol": 1e-8, "maxcor": 20},
    )
    return unpack(result.x) if result.fun <= evaluate(start)[0] else before


def objective(
    subjects: list[Coordinates], R: Matrix, classifier: Classifier, balance: Balance
) -> float:
    """Return the value of the whole objective."""
    total = float((classifier.theta**2).sum()) / 2
    for s in subjects:
        distance = s.locked - R @ s.Q.T
        total += balance.rows(len(R)) / 2 * float((distance * distance).sum())
        if s.n_labelled:
            log_p = classifier.log_probabilities(s.labelled @ s.Q)
            total -= balance.labels * float(
                log_p[np.arange(s.n_labelled), s.codes].mean()
            )
    return total


def fit_all(
    subjects: list[Coordinates],
    start: Matrix,
    n_classes: int,
    balance: Balance,
    *,
    over_subjects: Callable[..., list[Any]],
    new_progress: Callable[[float], Progress],
) -> tuple[Matrix, Classifier, Progress]:
    """Descend by turns over maps, shared response and classifier.

    Parameters
    ----------
    subjects : list of Coordinates
        Their maps are set.
    start : ndarray of shape (n_locked, K)
        Shared response that the first maps are aligned to.
    n_classes : int
        Number of classes.
    balance : Balance
        Weights of the terms.
    over_subjects : callable
        ``map`` over subjects, in threads.
    new_progress : callable
        Begins the record of the objective.
    """

    def mean_response() -> Matrix:
        return np.asarray(sum(s.locked @ s.Q for s in subjects) / len(subjects))

    for s in subjects:
        s.Q = polar(s.locked.T @ start)
    k = start.shape[1]
    R = mean_response()
    nothing = Classifier(np.zeros((k, n_classes)), np.zeros(n_classes))
    classifier = fit_classifier(subjects, balance, nothing)
    progress = new_progress(objective(subjects, R, classifier, balance))
    while progress.go_on():
        now, theta = R, classifier
        over_subjects(
            lambda s, now=now, theta=theta: step_map(s, now, theta, balance), subjects
        )
        R = mean_response()
        classifier = fit_classifier(subjects, balance, classifier)
        progress.add(objective(subjects, R, classifier, balance))
    return R, classifier, progress
