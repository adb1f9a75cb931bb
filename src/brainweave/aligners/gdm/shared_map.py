"""What was chosen of places, and the map that all subjects share in them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from brainweave._core.arrays import Matrix, samples_of, to_numpy
from brainweave._core.exceptions import InputError
from brainweave._core.stored import Stored
from brainweave._core.validation import check_samples
from brainweave.aligners.maps import WeightMap
from brainweave.basis.places import Places


@dataclass(frozen=True)
class Placement(Stored):
    """Whether and how a GDM uses places that subjects have in common.

    Attributes
    ----------
    ridge : float or None
        The ridge of the shared map, in units of the subjects' mean eigenvalues; None
        if no place is used.
    n_places : int
        How many places there are.
    what : str
        What they are, or why there are none.
    names : tuple or None
        Of the places, by which subjects who join are matched; None for equal columns.
    frame : str
        The space in which they lie, if it is known.
    """

    _stored: ClassVar[dict[str, Any]] = {
        "ridge?": float,
        "n_places": int,
        "what": str,
        "names?": tuple,
        "frame": str,
    }

    ridge: float | None = None
    n_places: int = 0
    what: str = "place=None"
    names: tuple[Any, ...] | None = None
    frame: str = ""

    @property
    def used(self) -> bool:
        """Whether the model has a shared map."""
        return self.ridge is not None

    def places(self) -> Places:
        """Return the places, to match a subject who joins."""
        return Places(self.n_places, [], self.what, self.names, self.frame)

    def __str__(self) -> str:
        if self.used:
            return (
                f"A map shared by all subjects over {self.n_places} places "
                f"({self.what}), ridge {self.ridge:.3g}, and each subject's deviation "
                "from it."
            )
        if not self.n_places:
            return f"No shared map: {self.what}."
        return (
            f"No shared map: {self.n_places} places ({self.what}) did not clearly "
            "improve agreement on held-out samples, or none could be held out. Set "
            "place_shrinkage=0.1 to use them."
        )

    def _misfits(self) -> Iterator[str]:
        if self.names is not None and len(self.names) != self.n_places:
            yield "names other places than it has"


@dataclass(frozen=True, eq=False)
class SharedMap:
    """The map for anyone whose samples lie in the places of a model.

    Made by ``gdm.shared_map_``. Samples are standardised by their own mean and
    deviation: a subject needs no aligning data.

    Parameters
    ----------
    weights : ndarray of shape (n_places, K)
        Shared features per place.
    placement : Placement
        What the places are.
    scaled : bool, default=True
        Whether voxels are divided by their deviations.
    place : array of labels or matrix, optional
        The places of the voxels, where the model was given them.
    """

    weights: Matrix
    placement: Placement
    scaled: bool = True
    place: Any = "auto"

    def map_for(self, X: Any, *, name: str = "X") -> WeightMap:
        """Return the map of a subject, from the mean and deviation of its samples.

        Parameters
        ----------
        X : array of shape (n_samples, n_voxels), or a Subject
            Samples of anyone in the space of the model.
        name : str, default="X"
            What messages call it.

        Returns
        -------
        WeightMap
            Without aligning samples: ``took_part`` is False for all.
        """
        matrix = self.placement.places().of_new(X, self.place)
        samples = to_numpy(samples_of(X))
        samples = check_samples(samples, samples.shape[1], name)
        if len(samples) < 2:
            raise InputError(
                f"{name} has {len(samples)} samples; the shared map standardises "
                "voxels by their mean and deviation, which takes two at least."
            )
        scale = samples.std(axis=0, dtype=np.float64)
        weights = self.weights if matrix is None else np.asarray(matrix @ self.weights)
        return WeightMap(
            weights=weights,
            patterns=np.linalg.pinv(weights),
            mean=samples.mean(axis=0, dtype=np.float64),
            scale=np.where(scale > 0, scale if self.scaled else 1.0, np.inf),
            space=getattr(X, "space", None),
            signatures=np.zeros((0, 4)),
        )

    def transform(self, X: Any) -> Any:
        """Map samples of anyone in the space of the model, (n_samples, K).

        Parameters
        ----------
        X : array of shape (n_samples, n_voxels), or a Subject
            Samples; they are standardised by their own mean and deviation.
        """
        return self.map_for(X).transform(to_numpy(samples_of(X)))

    def to_image(self, component: int, like: Any) -> Any:
        """Put the weights of one shared feature on a brain.

        Parameters
        ----------
        component : int
            Which shared feature.
        like : Subject
            One whose brain space shows the places.
        """
        if getattr(like, "space", None) is None:
            raise InputError(
                "to_image needs a subject that was loaded from images: its brain space "
                "says where the places are."
            )
        if component not in range(k := self.weights.shape[1]):
            raise InputError(f"component must be in 0 to {k - 1}; got {component}.")
        matrix = self.placement.places().of_new(like, self.place)
        values = self.weights[:, component]
        if matrix is not None:
            values = (matrix > 0) @ values
        return like.space.to_image(np.asarray(values))
