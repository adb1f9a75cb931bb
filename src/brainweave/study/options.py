"""Options of readers and simulations: in small objects, or one by one by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_type_hints

from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_list_option, check_option
from brainweave.study.formats.events import OVERLAPS, check_t_r_option
from brainweave.study.formats.runs import Cleaning

_SAMPLES = ("volumes", "blocks", "trials", "trials-lsa", "trials-lss")


@dataclass(frozen=True)
class EventRules:
    """What the events of a run say of its volumes.

    Parameters
    ----------
    ignore : str or sequence of str, default=()
        Labels that are no category, beside ``n/a`` and the labels of events that no
        analysis takes for stimuli: rest, baseline, fixation (cross), blank, null
        (event), ITI, ISI, response, button (press, response), key press and trigger,
        in any case, plural or numbered. What was left out is in the record.
    keep : str or sequence of str, default=()
        Of these, labels that are categories all the same.
    overlap : {"longest", "last", "drop", "error"}, default="longest"
        Which event a volume shows that lies under events of several categories: the
        one that covers most of it, the one that began last, none, or an error. How
        many volumes that concerns is in a warning and in the record. Trial models
        tell overlapping trials apart, and need no rule.
    moments : bool, default=False
        Add the seconds since the stimulus began to the ids of volumes, so that the
        same moment of a film has the same id in every subject.
    """

    ignore: Sequence[str] | str = ()
    keep: Sequence[str] | str = ()
    overlap: str = "longest"
    moments: bool = False

    def __post_init__(self) -> None:
        for name in ("ignore", "keep"):
            listed = check_list_option(name, getattr(self, name), "EventRules")
            object.__setattr__(self, name, tuple(map(str, listed)))
        both = set(self.ignore) & set(self.keep)
        if both:
            raise InputError(f"{min(both)!r} is both in ignore=... and in keep=...")
        check_option("overlap", self.overlap, list(OVERLAPS), owner="EventRules")


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


@dataclass(frozen=True)
class SampleOptions:
    """How a reader of runs with events makes samples; see :meth:`merge`."""

    samples: str
    rules: EventRules
    sampling: Sampling
    cleaning: Cleaning
    high_pass: float | Literal["auto"] | None  # of the runs, which remove it themselves

    @classmethod
    def merge(
        cls, owner: str, samples: str, details: Mapping[str, Any], *groups: Any
    ) -> SampleOptions:
        """Take rules, sampling and cleaning (or None), and details that set fields."""
        check_samples(samples, owner)
        kinds = EventRules, Sampling, Cleaning
        groups = tuple(g or kind() for g, kind in zip(groups, kinds, strict=True))
        rules, sampling, cleaning = merge_options(owner, details, *groups)
        high_pass, cleaning = cleaning.high_pass, replace(cleaning, high_pass=None)
        return cls(samples, rules, sampling, cleaning, high_pass)

    def settings(self) -> dict[str, Any]:
        """Return all fields by their names, for the record."""
        groups = (self.rules, self.sampling, self.cleaning)
        fields = {name: v for group in groups for name, v in asdict(group).items()}
        return {**fields, "samples": self.samples}


def check_samples(samples: Any, owner: str = "plan_samples") -> str:
    """Check the name of a way to make samples."""
    return check_option("samples", samples, _SAMPLES, owner=owner)


def merge_options(
    owner: str, options: Mapping[str, Any], *groups: Any
) -> tuple[Any, ...]:
    """Return the groups (frozen dataclasses) with the options set that were given.

    So ``load_bids(folder, ignore="rest")`` is short for
    ``load_bids(folder, events=EventRules(ignore="rest"))``.
    """
    names = {type(group).__name__: [f.name for f in fields(group)] for group in groups}
    known = [name for listed in names.values() for name in listed]
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            listing = (f"{kind} has {', '.join(n)}" for kind, n in names.items())
            hint = f"Did you mean {near[0]}?" if near else f"{'; '.join(listing)}."
            raise TypeError(f"Unknown option {name!r} of {owner}. {hint}")
    return tuple(
        replace(group, **{name: options[name] for name in own if name in options})
        for group, own in zip(groups, names.values(), strict=True)
    )


def option_names(function: Callable[..., Any]) -> list[str]:
    """List the options of a function, with the fields of objects that it takes."""
    hints = get_type_hints(function)
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        kinds = [k for k in get_args(hints.get(parameter.name)) if is_dataclass(k)]
        if kinds:
            names += [f.name for kind in kinds for f in fields(kind)]
        else:
            names.append(parameter.name)
    return names


def subject_entry(what: str, values: Mapping[str, Any], id: str) -> Any:
    """Return a mapping's entry for a subject; the error lists whom it has."""
    if id not in values:
        known = ", ".join(map(repr, values))
        raise InputError(
            f"There is no {what} for subject {id!r}; there is for {known}."
        )
    return values[id]
