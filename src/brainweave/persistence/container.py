"""The file itself: named arrays and a JSON document, in one safetensors file.

The entry ``brainweave`` of its metadata has two lines: a SHA-256 of the other, and the
document, JSON text that says what the arrays mean and lists each with its type, shape
and SHA-256, so every bit that matters is guarded.
"""

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from brainweave._core.exceptions import ModelFileError
from brainweave._core.io import atomic_path
from brainweave._core.version import __version__
from brainweave.persistence.codec import OpenFile, Writer

SUFFIX = ".safetensors"
MODEL, BASIS = "brainweave-model", "brainweave-basis"
VERSION = 2  # of both formats; number 1 was never released
DTYPES: dict[str, np.dtype[Any]] = {
    **{f"F{8 * n}": np.dtype(f"<f{n}") for n in (8, 4, 2)},
    **{f"I{8 * n}": np.dtype(f"<i{n}") for n in (8, 4, 2, 1)},
    **{f"U{8 * n}": np.dtype(f"<u{n}") for n in (8, 4, 2, 1)},
    "BOOL": np.dtype("?"),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
MAX_HEADER = 100_000_000  # the limit of the safetensors format
MAX_DEPTH = 100  # of lists and tables within each other: readers call themselves

# -- writing ---------------------------------------------------------------------------


def write_document(
    path: Path,
    kind: str,
    main: Any,
    more: Mapping[str, Any],
    provenance: Mapping[str, Any] | None,
) -> Path:
    """Write a file of one kind: its main value, others by name, and provenance."""
    if path.suffix != SUFFIX:
        raise ModelFileError(
            f"{str(path)!r} must end in {SUFFIX}: {path.stem + SUFFIX!r}, say."
        )
    if path.is_dir():
        raise ModelFileError(f"{str(path)!r} is a folder. Choose a file name.")
    if provenance is not None and not isinstance(provenance, Mapping):
        raise TypeError(
            f"provenance must be a dict of texts and numbers, got {provenance!r}."
        )
    writer = Writer()
    others = {**more, "provenance": dict(provenance or {})}
    document = {
        "brainweave": __version__,
        kind.removeprefix("brainweave-"): writer.encode(main, ""),
        **writer.encode_table(others, ""),
        "shared": writer.shared,
    }
    if _is_nested_too_deeply(document):
        raise ModelFileError(
            f"{str(path)!r} would hold lists or tables that are nested too deeply: "
            f"more than {MAX_DEPTH} within each other. Simplify the provenance."
        )
    write_container(path, document, writer.arrays, kind=kind)
    return path


def write_container(
    path: Path,
    document: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    kind: str,
) -> None:
    """Write a file, all or nothing: a temporary one beside it is renamed at the end."""
    for name, array in arrays.items():
        if array.dtype.newbyteorder("<") not in CODES:
            raise ModelFileError(
                f"{name} holds {array.dtype}, which model files cannot store."
            )
    with _explain_write_errors(path), atomic_path(path) as partial:
        made = {
            name: np.require(array, array.dtype.newbyteorder("<"), "C")
            for name, array in arrays.items()
        }
        listed = {
            name: [CODES[values.dtype], list(values.shape), _digest(values)]
            for name, values in made.items()
        }
        ours = {"format": kind, "version": VERSION, "arrays": listed}
        text = json.dumps({**document, **ours}, allow_nan=False)
        if len(text) > MAX_HEADER // 2:  # the header lists all arrays once more
            raise ModelFileError(
                f"{str(path)!r} would hold {len(arrays)} arrays, too many for one "
                "file. Fit a Searchlight with keep_local=False, or use fewer pieces."
            )
        partial.touch()
        mode = partial.stat().st_mode
        # one entry: the library writes several in an order that varies
        metadata = {"brainweave": f"{_digest_of_text(text)}\n{text}"}
        save_file(made, partial, metadata)
        partial.chmod(mode)  # the library's file is private


def _digest(values: NDArray[Any]) -> str:
    raw: Any = values.reshape(-1).view(np.uint8)
    return hashlib.sha256(raw).hexdigest()


def _digest_of_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@contextmanager
def _explain_write_errors(path: Path) -> Iterator[None]:
    """Turn errors of writing into one that names the file and the remedy."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = getattr(error, "errno", None)
        if number in (errno.ENOSPC, errno.EDQUOT) or "os error 28" in str(error):
            raise ModelFileError(
                f"The disk was full before {str(path)!r} was complete; nothing was "
                "left behind. Free some space and save again."
            ) from error
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelFileError(
            f"{str(path)!r} cannot be written ({reason}). Choose another place."
        ) from error


# -- reading ---------------------------------------------------------------------------


# type and shape of an array, as the header states them
_Entry = tuple[str, tuple[int, ...]]


class _Refusal(Exception):
    """Why a file is refused: what to say behind its name."""


def _damaged(why: str) -> _Refusal:
    return _Refusal(f"is damaged: {why}. Get the file again.")


def read_container(
    path: Path, *, kind: str | None = None, verify: bool = True
) -> OpenFile:
    """Open a file after checking all of it; arrays are mapped, not read.

    Without a kind any of ours will do. Verifying reads the arrays once.
    """
    name = repr(str(path))
    try:
        with path.open("rb") as file:
            head, size = file.read(9), os.fstat(file.fileno()).st_size
            if len(head) < 9:
                raise _Refusal(
                    f"is empty or cut off: it has {size} bytes, fewer than any model."
                )
            if head[8:] != b"{":
                raise _Refusal(
                    "is not a model file: it is not in the safetensors format."
                )
            metadata, entries = _read_header(path)
            document = _read_document(metadata, kind)
            listed = document.get("arrays")
            if not isinstance(listed, dict) or set(listed) != set(entries):
                raise _damaged("its arrays are not those it describes")
            start = 8 + int.from_bytes(head[:8], "little")
            arrays = dict(_map_arrays(file, start, size, entries, listed))
        for key, array in arrays.items() if verify else ():
            if _digest(array) != listed[key][-1]:
                raise _damaged(f"the checksum of array {key!r} does not match")
    except _Refusal as refusal:
        raise ModelFileError(f"{name} {refusal}") from refusal.__cause__
    except FileNotFoundError:
        raise ModelFileError(f"There is no file {name}. Check the path.") from None
    except OSError as error:
        raise ModelFileError(f"{name} cannot be read ({error.strerror}).") from error
    return OpenFile(path, document, arrays)


def _read_header(path: Path) -> tuple[dict[str, str], dict[str, _Entry]]:
    """Return the metadata and the arrays in the order of the file.

    The library has made sure that the arrays fill the file without gaps.
    """
    try:
        with safe_open(path, framework="np") as opened:
            parts = {key: opened.get_slice(key) for key in opened.offset_keys()}
            entries = {
                key: (str(part.get_dtype()), tuple(part.get_shape()))
                for key, part in parts.items()
            }
            return opened.metadata() or {}, entries
    except SafetensorError as error:
        raise _Refusal(
            f"was cut off, appended to or damaged in its header ({error}). Get the "
            "file again."
        ) from error


def _read_document(metadata: dict[str, str], wanted: str | None) -> dict[str, Any]:
    """Return the document, of a kind of file that is wanted."""
    checksum, _, text = metadata.get("brainweave", "").partition("\n")
    if not text:
        raise _Refusal("is a safetensors file, but brainweave did not write it.")
    if _digest_of_text(text) != checksum:
        raise _damaged("the checksum of its description does not match")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(f"its description is not readable ({error})") from error
    if not isinstance(document, dict):
        raise _damaged("its description is not a table")
    if _is_nested_too_deeply(document):
        raise _damaged("its description is nested too deeply")
    kind, version = document.get("format"), document.get("version")
    if kind not in ((MODEL, BASIS) if wanted is None else (wanted,)):
        raise _Refusal(f"is a {kind} file; a {wanted or MODEL} file is needed here.")
    if type(version) is int and version > VERSION:
        raise _Refusal(
            f"is newer than this brainweave: it has format version {version}, and "
            f"version {VERSION} can be read. Update brainweave."
        )
    if version != VERSION:
        raise _damaged(f"its version is {str(version)[:20]!r}")
    return document


def _is_nested_too_deeply(document: Any) -> bool:
    """Whether tables and lists are nested deeper than a file may have."""
    level = [document]
    for _ in range(MAX_DEPTH):
        inner = (v.values() if isinstance(v, dict) else v for v in level)
        level = [v for values in inner for v in values if isinstance(v, dict | list)]
        if not level:
            return False
    return True


def _map_arrays(
    file: Any, start: int, size: int, entries: dict[str, _Entry], listed: dict[str, Any]
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays behind the header, mapped copy on write."""
    flat: Any = np.empty(0, np.uint8)
    if size > start:
        flat = np.memmap(file, np.uint8, "c", offset=start, shape=(size - start,))
        flat = np.asarray(flat)
    begin = 0
    for key, (code, shape) in entries.items():
        stated = listed[key]
        if not isinstance(stated, list) or stated[:2] != [code, list(shape)]:
            raise _damaged(f"array {key!r} is not of the type and shape written")
        if code not in DTYPES or not isinstance(stated[-1], str):
            raise _damaged(f"array {key!r} has an unknown type, or no checksum")
        dtype = DTYPES[code]
        part = flat[begin : begin + prod(shape) * dtype.itemsize]
        if (start + begin) % dtype.itemsize:
            part = part.copy()  # somebody else's writer: not aligned
        try:
            yield key, part.view(dtype).reshape(shape)
        except ValueError as error:
            raise _damaged(f"array {key!r} has shape {shape}") from error
        begin += part.size
    if begin != flat.size:
        raise _damaged("it changed while it was read")
