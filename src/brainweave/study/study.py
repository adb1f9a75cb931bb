"""Study: samples of many people, chosen, split and handed to aligners."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import StudyError
from brainweave._core.html import study_html
from brainweave._core.labels import sort_labels
from brainweave._core.validation import (
    check_list_option,
    check_option,
    format_ids,
    refuse_ambiguous_number,
)
from brainweave.study.subject import Subject, fingerprint

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Study", "Subject"]


class Study(Sequence[Subject]):
    """Several subjects; they may differ in samples, voxels, runs and categories.

    ``study["01"]`` is the subject with that id and ``study[0]`` the first one. A number
    that is the id of one subject and the position of another raises an error.

    Parameters
    ----------
    subjects : iterable of Subject
        At least one; ids must differ.
    name : str, default=""
        Name of the study.
    record : dict, optional
        Record of the preprocessing, of JSON values; see :func:`brainweave.load_bids`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> study = Study(
    ...     Subject(f"0{i}", rng.normal(size=(4, 3 + i)), labels=list("aabb"))
    ...     for i in (1, 2)
    ... )
    >>> study.summary()[["samples", "voxels", "categories"]]
             samples  voxels  categories
    subject
    01             4       4           2
    02             4       5           2
    >>> first, second = study.split_halves()
    >>> first["01"].labels.tolist()
    ['a', 'b']
    """

    def __init__(
        self,
        subjects: Iterable[Subject],
        name: str = "",
        record: dict[str, Any] | None = None,
    ) -> None:
        self.subjects = tuple(subjects)
        self.name = name
        self.record = record
        for position, subject in enumerate(self.subjects):
            if not isinstance(subject, Subject):
                raise TypeError(
                    f"subjects[{position}] is a {type(subject).__name__}, not a "
                    "Subject. Wrap arrays: Subject(id, samples, labels=...)."
                )
        if not self.subjects:
            raise StudyError("A study needs at least one subject, got none.")
        twice = [id for id, count in Counter(self.ids).items() if count > 1]
        if twice:
            raise StudyError(
                f"Subject ids must differ, but {format_ids(twice)} occurs more than "
                "once. Rename one of them, or join their runs into one Subject."
            )

    @property
    def ids(self) -> list[str]:
        """The subjects' ids, in order."""
        return [subject.id for subject in self.subjects]

    @property
    def categories(self) -> list[Any]:
        """Labels that occur in any subject, sorted."""
        return sort_labels(c for subject in self.subjects for c in subject.categories)

    @property
    def run_ids(self) -> list[Any]:
        """Runs that occur in any subject, sorted."""
        return sort_labels(run for subject in self.subjects for run in subject.run_ids)

    def __len__(self) -> int:
        return len(self.subjects)

    def __iter__(self) -> Iterator[Subject]:
        return iter(self.subjects)

    def __reversed__(self) -> Iterator[Subject]:
        return reversed(self.subjects)

    def index(self, value: Any, *limits: int) -> int:
        """Return the position of a subject, as :meth:`list.index` does."""
        return self.subjects.index(value, *limits)

    def __contains__(self, item: object) -> bool:
        return item in self.ids if isinstance(item, str) else item in self.subjects

    @overload
    def __getitem__(self, key: int | str) -> Subject: ...
    @overload
    def __getitem__(self, key: slice) -> "Study": ...
    def __getitem__(self, key: int | str | slice) -> "Subject | Study":
        if isinstance(key, slice):
            return self._with_subjects(self.subjects[key])
        return self.subjects[self._position(key)]

    def __repr__(self) -> str:
        name = f"{self.name!r}, " if self.name else ""
        return f"Study({name}{len(self)} subjects: {format_ids(self.ids)})"

    _repr_html_ = study_html

    def _with_subjects(self, subjects: Iterable[Subject]) -> "Study":
        return Study(subjects, self.name, self.record)

    def summary(self) -> "pd.DataFrame":
        """Tabulate the subjects: counts, types and memory; nothing is read.

        Returns
        -------
        DataFrame
            A row per subject: samples, voxels, runs, categories, unlabelled, stimuli,
            dtype, space, lazy, megabytes (of the samples once read).
        """
        import pandas as pd

        rows = {}
        for subject in self.subjects:
            dtype = getattr(subject.samples, "dtype", None)
            stimuli = [] if subject.stimuli is None else subject.stimuli.tolist()
            n_numbers = subject.n_samples * subject.n_voxels
            rows[subject.id] = {
                "samples": subject.n_samples,
                "voxels": subject.n_voxels,
                "runs": len(subject.run_ids),
                "categories": len(subject.categories),
                "unlabelled": subject.n_unlabelled,
                "stimuli": len(sort_labels(stimuli)),
                "dtype": str(dtype),
                "space": "" if subject.space is None else subject.space.kind,
                "lazy": subject.is_lazy,
                "megabytes": round(n_numbers * getattr(dtype, "itemsize", 8) / 1e6, 1),
            }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("subject")

    def map(self, function: Callable[[Subject], Subject]) -> "Study":
        """Apply a function to each subject and keep the name.

        Parameters
        ----------
        function : callable
            Takes a :class:`Subject` and returns one.

        Returns
        -------
        Study
            Of what the function returned.
        """
        return self._with_subjects(function(subject) for subject in self.subjects)

    def subset(self, subjects: Iterable[str | int]) -> "Study":
        """Keep some subjects; :meth:`map` with ``Subject.select`` chooses samples.

        Parameters
        ----------
        subjects : iterable of str or int
            Ids in the order wanted, or positions, as ints; a number that is also the
            id of a subject at another position is refused.

        Returns
        -------
        Study
            The subjects as they are.
        """
        keys = check_list_option("subjects", subjects, owner="subset")
        return self._with_subjects(self.subjects[self._position(key)] for key in keys)

    def split_halves(
        self, by: Literal["category", "run"] = "category"
    ) -> tuple["Study", "Study"]:
        """Split every subject's samples into two halves.

        Parameters
        ----------
        by : {"category", "run"}, default="category"
            ``"category"``: of each category of each subject, the first half of its
            samples (in order) goes to the first study, as in the GDM paper. The middle
            sample of odd counts goes to the first half and to the second in turn.
            Unlabelled samples count as one more category.
            ``"run"``: the first half of the study's runs, sorted, and the rest; the
            middle one of an odd number of runs goes to the first half.

        Returns
        -------
        first, second : Study
            Samples keep their order.
        """
        pairs = list(zip(self.subjects, self._first_halves(by), strict=True))
        return (
            self._with_subjects(subject.select(mask) for subject, mask in pairs),
            self._with_subjects(subject.select(~mask) for subject, mask in pairs),
        )

    def _first_halves(self, by: str) -> list[NDArray[np.bool_]]:
        """Mark, for each subject, the samples of the first half."""
        check_option("by", by, ("category", "run"), owner="split_halves")
        masks: list[NDArray[np.bool_]] = []
        if by == "category":
            for subject in self.subjects:
                masks.append(np.zeros(subject.n_samples, bool))
                groups = [subject.labels == label for label in subject.categories]
                extra = 1  # the first half gets one more, then the second
                for group in (*groups, subject.unlabelled()):
                    rows = np.flatnonzero(group)
                    half = (len(rows) + extra) // 2
                    extra = (extra + len(rows)) % 2
                    masks[-1][rows[:half]] = True
        else:
            for subject in self.subjects:
                if subject.runs is None:
                    raise StudyError(
                        f"Subject {subject.id!r} has no runs to split by. "
                        'Give runs, or split by "category".'
                    )
            first = self.run_ids[: (len(self.run_ids) + 1) // 2]
            masks = [np.isin(s.runs, first) for s in self.subjects]  # type: ignore[arg-type]
        for subject, mask in zip(self.subjects, masks, strict=True):
            if mask.all() or not mask.any():
                raise StudyError(
                    f"Subject {subject.id!r} has its {subject.n_samples} samples all "
                    f"in one half when split by {by}. Leave it out with subset()"
                    + (', or split by "category".' if by == "run" else ".")
                )
        return masks

    def zscore(self, by: Literal["run", "all"] = "run") -> "Study":
        """Standardise each voxel of each subject within its runs.

        A voxel that is constant in a run becomes 0 there. Arrays in memory are copied,
        memory maps and lazy sources are standardised when read.

        Parameters
        ----------
        by : {"run", "all"}, default="run"
            Within each run, or over all samples of the subject.

        Returns
        -------
        Study
            The standardised study, with an entry in its record.
        """
        scaled = self.map(lambda subject: subject.zscore(by))
        scaled.record = {**(self.record or {}), "zscore": by}
        return scaled

    def fingerprint(self) -> str:
        """Return a hash of the study's content (ids, labels, samples)."""
        return fingerprint(self)

    def save(self, folder: str | PathLike[str], **options: Any) -> "Study":
        """Write a study folder and open it.

        A lazy study is converted with memory for `n_jobs` subjects.

        Parameters
        ----------
        folder : path
            Folder to create; it must not exist, unless `overwrite`.
        **options : various
            ``overwrite``, True to replace the study that is in `folder`; ``dtype`` of
            the stored samples, such as ``"float32"``; ``n_jobs``, subjects to convert
            at the same time (1); ``progress``, True for a bar.

        Returns
        -------
        Study
            The study as saved, its samples mapped from the folder.
        """
        from brainweave.study.formats.folder import save_study

        return save_study(self, folder, **options)

    @classmethod
    def open(
        cls, folder: str | PathLike[str], *, verify: bool | None = None
    ) -> "Study":
        """Open a study folder; samples are memory-mapped, read-only.

        Parameters
        ----------
        folder : path
            What :meth:`save` wrote.
        verify : bool, optional
            Compare the checksum of every file, which reads all of the samples, or check
            them by size and header only. By default, studies of up to half a gigabyte
            are verified.

        Returns
        -------
        Study
        """
        from brainweave.study.formats.folder import open_study

        return open_study(folder, verify=verify)

    def _position(self, key: int | str) -> int:
        if isinstance(key, str):
            if key in self.ids:
                return self.ids.index(key)
            known = format_ids(self.ids)
            raise StudyError(
                f"There is no subject {key!r} in this study; it has {known}."
            )
        if isinstance(key, int | np.integer) and not isinstance(key, bool):
            refuse_ambiguous_number(int(key), self.ids, owner="The study")
            if -len(self) <= key < len(self):
                return int(key)
            # IndexError, since sequences are iterated until it is raised
            raise IndexError(f"There is no subject {key}; the study has {len(self)}.")
        raise TypeError(f"A subject is an id or a position, got {type(key).__name__}.")
