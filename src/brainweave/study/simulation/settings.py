"""What a simulated study is made of: the settings, in three small groups."""

from dataclasses import dataclass

from brainweave.exceptions import InputError

__all__ = ["Noise", "Responses", "Timing"]


@dataclass(frozen=True)
class Timing:
    """When things are shown and scanned.

    Parameters
    ----------
    repetitions : int, optional
        Blocks, trials or scenes per category and run (1 with blocks, 6 with events, 2
        with a movie).
    duration : float, optional
        Seconds of one of them (22.5, 2 and 20); whole volumes except for events.
    gap : tuple of two floats, optional
        Least and most seconds between them.
    tr : float, default=2.5
        Seconds from one volume to the next.
    hrf_delay : float, default=5.0
        Seconds by which the labels of volumes lag the stimuli.
    hrf : bool, default=True
        Whether responses are blurred and late; use ``hrf_delay=0`` without.
    """

    repetitions: int | None = None
    duration: float | None = None
    gap: tuple[float, float] | None = None
    tr: float = 2.5
    hrf_delay: float = 5.0
    hrf: bool = True

    def __post_init__(self) -> None:
        _check(self, "tr", above_zero=True)
        _check(self, "hrf_delay", above_zero=False)


@dataclass(frozen=True)
class Responses:
    """What brains do when something is shown, and where.

    Parameters
    ----------
    n_shared : int, default=10
        Dimensions of the shared space.
    signal : float, default=2.5
        Standard deviation over voxels of a category's response, in per cent of a mean
        image of 100.
    within, trial_variability : float, default=0.3
        How much the stimuli of a category differ, in all subjects alike, and how much
        a response differs from trial to trial, relative to the categories.
    smoothness : float, default=1.2
        Width of the spatial kernel of all maps, in voxels.
    baseline : float, default=100.0
        Level of the mean image.
    """

    n_shared: int = 10
    signal: float = 2.5
    within: float = 0.3
    trial_variability: float = 0.3
    smoothness: float = 1.2
    baseline: float = 100.0

    def __post_init__(self) -> None:
        _check(self, "n_shared", "smoothness", above_zero=True)
        not_negative = ("signal", "within", "trial_variability", "baseline")
        _check(self, *not_negative, above_zero=False)


@dataclass(frozen=True)
class Noise:
    """What else is in the images.

    Parameters
    ----------
    structured_noise, local_noise : float, default=4.0, 0.3
        Standard deviation over voxels, in per cent of a mean image of 100: of noise
        with a spatial pattern of the subject's own, and of noise of each voxel's own.
    n_nuisance : int, default=40
        Rank of the structured noise.
    spontaneous : float, default=0.35
        Activity of the subject's own in the places that respond, relative to the
        responses.
    autocorrelation : float, default=0.3
        Of the local noise, from one volume to the next.
    """

    structured_noise: float = 4.0
    local_noise: float = 0.3
    n_nuisance: int = 40
    spontaneous: float = 0.35
    autocorrelation: float = 0.3

    def __post_init__(self) -> None:
        not_negative = ("structured_noise", "local_noise", "n_nuisance", "spontaneous")
        _check(self, *not_negative, above_zero=False)
        if not -1 < self.autocorrelation < 1:
            raise InputError(
                f"autocorrelation={self.autocorrelation} must be in (-1, 1)."
            )


def _check(group: object, *names: str, above_zero: bool) -> None:
    for name in names:
        value = getattr(group, name)
        if not (value > 0 if above_zero else value >= 0):
            wanted = "be positive" if above_zero else "not be negative"
            raise InputError(f"{name}={value} must {wanted}.")
