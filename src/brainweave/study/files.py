"""Opening image files, with errors that name the file and the likely cause."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

from brainweave.exceptions import BrainweaveError, StudyError

__all__ = ["ImageLike", "image_name", "load_image", "reading"]

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
    brainweave.exceptions.StudyError: 'bold.nii.gz' ends early: ...
    """
    from nibabel.filebasedimages import ImageFileError
    from nibabel.spatialimages import HeaderDataError

    name = image_name(image)
    try:
        yield
    except BrainweaveError:
        raise
    except FileNotFoundError:
        raise StudyError(f"There is no file {name!r}. Check the path.") from None
    except (EOFError, zlib.error) as error:
        raise StudyError(
            f"{name!r} ends early: the copy or download was cut off "
            f"({_first_line(error)}). Get the file again."
        ) from error
    except (ImageFileError, HeaderDataError) as error:
        raise StudyError(
            f"{name!r} is not a readable image ({_first_line(error)}). Check the "
            "file's type, or get it again."
        ) from error
    except OSError as error:
        # nibabel reports an uncompressed file that is too short as an OSError
        raise StudyError(
            f"{name!r} cannot be read ({_first_line(error)}). It may be cut off or "
            "damaged: get the file again."
        ) from error
    except MemoryError as error:
        raise StudyError(
            f"{name!r} does not fit into memory ({_first_line(error)}). Its header may "
            "be damaged: check its shape."
        ) from error
    except Exception as error:
        # a damaged header makes nibabel fail in any way: a NaN where it computes an
        # offset, a code that it does not list, XML that ends early
        raise StudyError(
            f"{name!r} has a header that makes no sense ({type(error).__name__}: "
            f"{_first_line(error)}). It is damaged: get the file again."
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


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
