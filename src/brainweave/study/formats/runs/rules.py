"""How events become samples: the settings, in two small groups."""

from collections.abc import Sequence
from dataclasses import dataclass

from brainweave._validation import check_list_option, check_option
from brainweave.study.formats.runs.events import OVERLAPS
from brainweave.study.formats.runs.timing import check_t_r_option

__all__ = ["EventRules", "Sampling"]


@dataclass(frozen=True)
class EventRules:
    """What the events of a run say of its volumes.

    Parameters
    ----------
    ignore : str or sequence of str, default=("rest", "baseline", "fixation")
        Labels that are no category; so is ``n/a``.
    overlap : {"longest", "last", "drop", "error"}, default="longest"
        Which event a volume shows that lies under events of several categories: the
        one that covers most of it, the one that began last, none, or an error. How
        many volumes that concerns is in a warning and in the record. Trial models
        tell overlapping trials apart, and need no rule.
    moments : bool, default=False
        Add the seconds since the stimulus began to the ids of volumes, so that the
        same moment of a film has the same id in every subject.
    """

    ignore: Sequence[str] | str = ("rest", "baseline", "fixation")
    overlap: str = "longest"
    moments: bool = False

    def __post_init__(self) -> None:
        ignored = check_list_option("ignore", self.ignore, "EventRules")
        object.__setattr__(self, "ignore", tuple(map(str, ignored)))
        check_option("overlap", self.overlap, OVERLAPS, owner="EventRules")


@dataclass(frozen=True)
class Sampling:
    """How volumes become samples.

    Parameters
    ----------
    t_r : float, optional
        Repetition time in seconds, instead of what sidecars and headers say.
    hrf_delay : float, default=5.0
        Seconds from a stimulus to its response, for volumes and blocks.
    keep_rest : bool, default=False
        Keep volumes that show nothing, without a label.
    max_gap : float, default=4.0
        Most seconds between events of one block.
    hrf_model : str, default="glover"
        Response of the trial models, one of nilearn's.
    """

    t_r: float | None = None
    hrf_delay: float = 5.0
    keep_rest: bool = False
    max_gap: float = 4.0
    hrf_model: str = "glover"

    def __post_init__(self) -> None:
        object.__setattr__(self, "t_r", check_t_r_option(self.t_r))
