"""Opening images and tables, with errors that name the file and the likely cause."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

from brainweave.exceptions import BrainweaveError, StudyError

__all__ = ["ImageLike", "image_name", "load_image", "read_table", "reading"]

# A path, or an image object of nibabel.
ImageLike: TypeAlias = Any


def image_name(image: ImageLike) -> str:
    """Name an image for messages: its path, or what it is."""
    if isinstance(image, str | PathLike):
        return fspath(image)
    filename = getattr(image, "get_filename", lambda: None)()
    return filename or f"{type(image).__name__} in memory"


@contextmanager
def reading(image: ImageLike) -> Iterator[None]:
    """Turn whatever goes wrong while an image is read into a StudyError with its name.

    Examples
    --------
    >>> with reading("bold.nii.gz"):
    ...     raise EOFError("Compressed file ended")
    Traceback (most recent call last):
    brainweave.exceptions.StudyError: 'bold.nii.gz' ends early (Compressed file ...
    """
    try:
        yield
    except BrainweaveError:
        raise
    except FileNotFoundError:
        raise StudyError(
            f"There is no file {image_name(image)!r}. Check the path."
        ) from None
    except Exception as error:
        # a damaged header makes nibabel fail in any way: a NaN where it computes an
        # offset, a code that it does not list, XML that ends early
        problem, way_out = _diagnosis(error)
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise StudyError(
            f"{image_name(image)!r} {problem} ({said}). {way_out}"
        ) from error


def _diagnosis(error: Exception) -> tuple[str, str]:
    """Say what the error means for the file, and what to do."""
    from nibabel.filebasedimages import ImageFileError
    from nibabel.spatialimages import HeaderDataError

    if isinstance(error, EOFError | zlib.error):
        return "ends early", "The download was cut off: get the file again."
    if isinstance(error, ImageFileError | HeaderDataError):
        return "is not a readable image", "Check its type, or get the file again."
    if isinstance(error, OSError):  # also an uncompressed file that is too short
        return "cannot be read", "It may be cut off or damaged: get the file again."
    if isinstance(error, MemoryError):
        return "does not fit into memory", "Its header may be damaged: check its shape."
    return "has a header that makes no sense", "It is damaged: get the file again."


def load_image(image: ImageLike, *kinds: type) -> Any:
    """Open an image (the header only, where the format allows) and check its kind."""
    import nibabel as nib

    if isinstance(image, str | PathLike):
        with reading(image):
            image = nib.load(Path(image))
    if kinds and not isinstance(image, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise StudyError(
            f"{image_name(image)!r} is a {type(image).__name__}, not a {wanted}."
        )
    return image


def read_table(path: Path, separator: str = "\t", **options: Any) -> Any:
    """Read a table of text as a DataFrame; `options` are those of pandas."""
    import pandas as pd

    with reading(path):
        try:
            return pd.read_csv(path, sep=separator, **options)
        except pd.errors.EmptyDataError:
            raise StudyError(
                f"{str(path)!r} is empty: not even a header. Fill it, or remove it."
            ) from None
        except ValueError as error:  # so are pandas' and Unicode's errors
            kind = "tab-separated table" if separator == "\t" else "table"
            raise StudyError(f"{str(path)!r} is not a {kind} ({error}).") from None
