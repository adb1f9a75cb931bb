r"""The kernels of the paper, as functions of inner products and norms.

One pass over the voxels therefore serves all of them. With the paper's parameter
``hp``:

============ ============================================
linear       :math:`x^\top y`
gaussian     :math:`\exp(-\lVert x-y\rVert^2 / hp)`
quadratic    :math:`(x^\top y + hp)^2`
sigmoid      :math:`\tanh(x^\top y / hp)`
precomputed  the matrix that is given
callable     ``f(A, B)`` on standardised samples
============ ============================================
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_number

KernelFunction = Callable[[Any, Any], Any]

# name -> the value of hp that the paper's supplement uses
DEFAULT_HP = {"gaussian": 5000.0, "quadratic": 100.0, "sigmoid": 200.0}
NAMES = ("linear", *DEFAULT_HP, "precomputed")
UNLIKE = 1e-8  # samples whose kernel is below this share of its diagonal are unlike


@dataclass(frozen=True)
class Kernel:
    """A kernel and its parameter, checked."""

    name: str
    hp: float | None = None
    function: KernelFunction | None = None

    @property
    def from_products(self) -> bool:
        """Whether inner products and norms are all that the kernel needs."""
        return self.function is None and self.name != "precomputed"

    def up_to_constant(self, products: Matrix, sq_a: Matrix, sq_b: Matrix) -> Matrix:
        """Return the kernel of inner products and squared norms, less a constant."""
        # which would drown the samples in rounding; centring takes it away in any case
        hp = self.hp or 0.0
        if self.name == "gaussian":
            distances = sq_a[:, None] + sq_b[None, :] - 2 * products
            return np.asarray(np.expm1(-np.maximum(distances, 0) / hp))
        if self.name == "quadratic":
            return np.asarray(products * (products + 2 * hp))
        if self.name == "sigmoid":
            return np.tanh(products / hp)
        return products

    def call(self, a: Matrix, b: Matrix, name: str) -> Matrix:
        """Call the user's function on samples and check what comes back."""
        function: Any = self.function
        values = np.asarray(function(a, b), dtype=np.float64)
        shape, wrong = (len(a), len(b)), ""
        if values.shape != shape:
            wrong = f"shape {values.shape} in place of {shape}"
        elif not np.isfinite(values).all():
            wrong = "NaN or infinite values"
        elif a is b and not is_symmetric(values):
            wrong = "a matrix of samples with themselves that is not symmetric"
        if wrong:
            raise InputError(f"The kernel callable gave {wrong} for {name}.")
        return values

    def check_gram(self, gram: Matrix, name: str) -> None:
        """Refuse values that overflow, or samples that are like themselves alone."""
        if not np.isfinite(gram).all():
            raise InputError(
                f"{name}: the {self.name} kernel overflows with hp={self.hp:g}. Choose "
                "a smaller hp."
            )
        local = self.name == "gaussian"
        if not local and self.function is None:
            return
        likeness = gram + 1 if local else gram.copy()
        own = np.abs(likeness.diagonal()).max()
        np.fill_diagonal(likeness, 0)
        if np.abs(likeness).max() <= UNLIKE * own:
            raise InputError(
                f"{name}: the {self.name} kernel finds no two samples alike (its Gram "
                "matrix is the identity), so nothing can be learned for other samples. "
                "Choose a larger hp."
            )


def check_kernel(kernel: Any, params: Any = None, *, owner: str = "GDM") -> Kernel:
    """Return a checked Kernel from a name or callable and its parameters."""
    if isinstance(kernel, Kernel):
        return kernel
    named = isinstance(kernel, str) and kernel in NAMES
    if not named and not callable(kernel):
        raise InputError(
            f"kernel of {owner} must be a callable or one of "
            f"{', '.join(map(repr, NAMES))}; got {kernel!r}."
        )
    params = {} if params is None else params
    allowed = {"hp"} if named and kernel in DEFAULT_HP else set()
    if not isinstance(params, Mapping) or not set(params) <= allowed:
        error = InputError if isinstance(params, Mapping) else TypeError
        raise error(
            f"kernel_params of {owner} must be {{'hp': number}}, or a list of such; "
            f"kernels other than {', '.join(DEFAULT_HP)} take none. Got {params!r} for "
            f"{kernel!r}."
        )
    if not named:
        return Kernel("callable", function=kernel)
    hp = params.get("hp", DEFAULT_HP.get(kernel))
    if hp is not None:
        hp = check_number(f"hp of the {kernel} kernel", hp, "(0, inf)", owner=owner)
    return Kernel(kernel, hp)


@dataclass(frozen=True)
class Centring:
    """The means of a training Gram matrix, which centre new rows in feature space."""

    column_means: Matrix
    grand_mean: float

    def center_new(self, cross: Matrix) -> Matrix:
        """Centre k(new, training) with the mean of the training samples."""
        centred = cross - cross.mean(axis=1, keepdims=True)
        centred -= self.column_means - self.grand_mean
        return centred


def center_gram(gram: Matrix, *, overwrite: bool = False) -> tuple[Matrix, Centring]:
    """Centre a Gram matrix in feature space (step 3 of Algorithm 1)."""
    means = gram.mean(axis=0)
    centring = Centring(means, float(means.mean()))
    centred = np.subtract(gram, means, out=gram if overwrite else None)
    centred -= means[:, None] - centring.grand_mean
    return centred, centring


def check_precomputed(gram: Matrix, name: str) -> Matrix:
    """Refuse what is no Gram matrix of samples."""
    finite = np.isfinite(gram).all()
    if gram.shape[0] != gram.shape[1] or not finite or not is_symmetric(gram):
        raise InputError(
            f"{name} must be a square, symmetric Gram matrix without NaN for "
            f"kernel='precomputed'; got shape {gram.shape}."
        )
    return gram


def is_symmetric(gram: Matrix) -> bool:
    """Whether a Gram matrix is symmetric, up to what single precision leaves."""
    atol = 1e-8 * np.abs(gram).max()
    return bool(np.allclose(gram, gram.T, rtol=1e-5, atol=atol))
