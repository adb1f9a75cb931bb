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
from functools import partial
from typing import Any

import numpy as np
import scipy.optimize
from scipy.special import log_softmax

from brainweave._core.arrays import Codes, Matrix
from brainweave.aligners.timelocked import Iterations
from brainweave.basis.linalg import polar

INNER_STEPS = 10  # of each map, in each round
MOST_TRIALS = 60  # doublings of tau; far more than any data need


@dataclass
class SubjectTerms:
    """The terms of one subject: rows locked in time, labelled rows, and its map Q."""

    locked: Matrix
    labelled: Matrix
    codes: Codes
    alpha: float
    gamma: float
    Q: Matrix = field(default_factory=lambda: np.empty((0, 0)))
    tau: float = 0.0  # curvature that the last step needed

    @property
    def row_weight(self) -> float:
        """Weight of half the squared distance from the shared response."""
        return (1 - self.alpha) / max(len(self.locked), 1)

    @property
    def label_weight(self) -> float:
        """Weight of the loss of one labelled sample."""
        return self.alpha / self.gamma / max(len(self.codes), 1)


@dataclass(frozen=True)
class Classifier:
    """Multinomial logistic classifier: ``features @ theta + bias`` are its logits."""

    theta: Matrix
    bias: Matrix

    def log_probabilities(self, features: Matrix) -> Matrix:
        """Return the log-probability of each class, (n_samples, n_classes)."""
        return np.asarray(log_softmax(features @ self.theta + self.bias, axis=1))

    def losses(self, features: Matrix, codes: Codes) -> tuple[Matrix, Matrix]:
        """Return the loss of each sample, and its slope along the logits."""
        log_p, rows = self.log_probabilities(features), np.arange(len(codes))
        slope = np.exp(log_p)
        slope[rows, codes] -= 1
        return -log_p[rows, codes], slope


def step_map(
    subject: SubjectTerms,
    R: Matrix,
    classifier: Classifier,
    *,
    n_steps: int = INNER_STEPS,
    tol: float = 1e-10,
) -> list[float]:
    """Descend over one subject's map, in place; return its values but for constants."""
    pull = subject.row_weight * (subject.locked.T @ R)
    weight = subject.label_weight

    def evaluate(Q: Matrix) -> tuple[float, Matrix]:
        losses, slope = classifier.losses(subject.labelled @ Q, subject.codes)
        value = weight * float(losses.sum()) - float((pull * Q).sum())
        gradient = weight * (subject.labelled.T @ (slope @ classifier.theta.T)) - pull
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
    subject: SubjectTerms,
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


def fit_classifier(subjects: list[SubjectTerms], before: Classifier) -> Classifier:
    """Return the best classifier of the labelled features: a convex problem."""
    features = np.concatenate([s.labelled @ s.Q for s in subjects])
    codes = np.concatenate([s.codes for s in subjects])
    counts = [len(s.codes) for s in subjects]
    weights = np.repeat([s.label_weight for s in subjects], counts)
    k, n_classes = before.theta.shape

    def unpack(flat: Matrix) -> Classifier:
        theta, bias = np.split(flat, [k * n_classes])
        return Classifier(theta.reshape(k, n_classes), bias)

    def evaluate(flat: Matrix) -> tuple[float, Matrix]:
        now = unpack(flat)
        losses, slope = now.losses(features, codes)
        value = weights @ losses + (now.theta**2).sum() / 2
        slope *= weights[:, None]
        by_theta = features.T @ slope + now.theta
        return float(value), np.concatenate([by_theta.ravel(), slope.sum(axis=0)])

    start = np.concatenate([before.theta.ravel(), before.bias])
    result = scipy.optimize.minimize(
        evaluate,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500, "ftol": 1e-13, "gtol": 1e-8, "maxcor": 20},
    )
    return unpack(result.x) if result.fun <= evaluate(start)[0] else before


def objective(subjects: list[SubjectTerms], R: Matrix, classifier: Classifier) -> float:
    """Return the value of the whole objective."""
    total = float((classifier.theta**2).sum()) / 2
    for s in subjects:
        distance = s.locked - R @ s.Q.T
        total += s.row_weight / 2 * float((distance * distance).sum())
        losses, _ = classifier.losses(s.labelled @ s.Q, s.codes)
        total += s.label_weight * float(losses.sum())
    return total


def fit_model(
    subjects: list[SubjectTerms],
    start: Matrix,
    n_classes: int,
    *,
    over_subjects: Callable[..., list[Any]],
    new_iterations: Callable[[float], Iterations],
) -> tuple[Matrix, Classifier, Iterations]:
    """Descend by turns over maps, which are set, shared response and classifier."""

    def mean_response() -> Matrix:
        return np.asarray(sum(s.locked @ s.Q for s in subjects) / len(subjects))

    for s in subjects:
        s.Q = polar(s.locked.T @ start)
    R = mean_response()
    nothing = Classifier(np.zeros((start.shape[1], n_classes)), np.zeros(n_classes))
    classifier = fit_classifier(subjects, nothing)
    iterations = new_iterations(objective(subjects, R, classifier))
    while iterations.go_on():
        step = partial(step_map, R=R, classifier=classifier)
        over_subjects(step, subjects)
        R = mean_response()
        classifier = fit_classifier(subjects, classifier)
        iterations.add(objective(subjects, R, classifier))
    return R, classifier, iterations
