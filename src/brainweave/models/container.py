"""The file itself: named arrays and a JSON document, in one safetensors file.

Layout: the safetensors format (eight bytes of header length, a JSON header, the
arrays one after the other). Its ``__metadata__`` holds ``format`` and ``version`` of
ours, ``document`` (JSON text that says what the arrays mean) and ``checksum``, a
SHA-256 of these three. The document lists each array with its type, shape and SHA-256,
so every bit that matters is guarded. Other tools can open the file as safetensors.
"""

import errno
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import ModelFileError

SUFFIX = ".safetensors"
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
MAX_HEADER = 100_000_000  # the limit of the safetensors format
CHUNK = 2**20


@dataclass(frozen=True)
class PendingArray:
    """An array that is made when it is written, so that one is in memory at a time."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    make: Callable[[], Any]


@dataclass(frozen=True)
class Container:
    """An open file: its document, and its arrays mapped from disk."""

    path: Path
    version: int
    document: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def pending(array: Any) -> PendingArray:
    """Wrap an array that exists already."""
    return PendingArray(tuple(array.shape), array.dtype, lambda: array)


# -- writing ---------------------------------------------------------------------------


def write_container(
    path: Path,
    document: Mapping[str, Any],
    arrays: Mapping[str, PendingArray],
    *,
    kind: str,
    version: int,
) -> None:
    """Write a file, all or nothing: a temporary one beside it is renamed at the end."""
    # large types first, so that every array starts at a multiple of its own size
    names = sorted(arrays, key=lambda n: (-arrays[n].dtype.itemsize, n))
    table = {name: _entry(name, arrays[name]) for name in names}

    def header(digests: Mapping[str, str]) -> bytes:
        listed = {n: [*table[n][:2], digests[n]] for n in names}
        text = json.dumps({**document, "arrays": listed}, allow_nan=False)
        return _header(table, _metadata(kind, version, text))

    blank = header(dict.fromkeys(names, "0" * 64))
    if len(blank) > MAX_HEADER:
        raise ModelFileError(
            f"{str(path)!r} would hold {len(names)} arrays, too many for one file. Fit "
            "a Searchlight with keep_local=False, or use fewer pieces."
        )
    with _replacing(path) as file:
        file.write(blank)
        digests = {n: _write_array(file, n, arrays[n]) for n in names}
        file.seek(0)
        file.write(header(digests))  # digests have one length, so it fits exactly


def _entry(name: str, array: PendingArray) -> tuple[str, list[int], int]:
    dtype = np.dtype(array.dtype).newbyteorder("<")
    if dtype not in CODES:
        raise ModelFileError(
            f"{name} holds {array.dtype}, which model files cannot store."
        )
    shape = [int(n) for n in array.shape]
    return CODES[dtype], shape, prod(shape) * dtype.itemsize


def _metadata(kind: str, version: int, document: str) -> dict[str, str]:
    return {
        "format": kind,
        "version": str(version),
        "checksum": _checksum(kind, str(version), document),
        "document": document,
    }


def _checksum(kind: str, version: str, document: str) -> str:
    text = f"{kind}\n{version}\n{document}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _header(
    table: Mapping[str, tuple[str, list[int], int]], metadata: dict[str, str]
) -> bytes:
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, (code, shape, size) in table.items():
        header[name] = {
            "dtype": code,
            "shape": shape,
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 64)
    return len(text).to_bytes(8, "little") + text


def _write_array(file: Any, name: str, array: PendingArray) -> str:
    dtype = np.dtype(array.dtype).newbyteorder("<")
    values = np.ascontiguousarray(array.make(), dtype=dtype)
    if values.shape != tuple(array.shape):
        raise ModelFileError(
            f"{name} has shape {values.shape} where {tuple(array.shape)} was expected."
        )
    raw: Any = values.reshape(-1).view(np.uint8).data
    file.write(raw)
    return hashlib.sha256(raw).hexdigest()


@contextmanager
def _replacing(path: Path) -> Iterator[Any]:
    """Give a temporary file that takes the place of path once all went well."""
    work = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        with work.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(work, path)
    except BaseException as error:
        work.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ModelFileError(_why_not_written(path, error)) from error
        raise


def _why_not_written(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"The disk was full before {str(path)!r} was complete; nothing was left "
            "behind. Free some space and save again."
        )
    reason = error.strerror or str(error)
    return f"{str(path)!r} cannot be written ({reason}). Choose another place."


# -- reading ---------------------------------------------------------------------------


def read_container(
    path: Path, *, kind: str, newest: int, verify: bool = True
) -> Container:
    """Open a file after checking all of it; arrays are mapped, not read.

    Parameters
    ----------
    path : Path
        The file.
    kind : str
        The format it must have.
    newest : int
        The newest version that can be read.
    verify : bool, default=True
        Compare the checksums of the arrays, which reads them once, in small pieces.
    """
    name = repr(str(path))
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header, start = _read_header(file, size, name)
            version, document = _read_document(header, kind, newest, name)
            table = _read_table(header, document, size - start, name)
            if verify:
                _verify(file, start, table, name)
    except FileNotFoundError:
        raise ModelFileError(f"There is no file {name}. Check the path.") from None
    except OSError as error:
        raise ModelFileError(f"{name} cannot be read ({error.strerror}).") from error
    arrays = _map(path, start, table, size - start, name)
    return Container(path, version, document, arrays)


def _damaged(name: str, why: str) -> ModelFileError:
    return ModelFileError(f"{name} is damaged: {why}. Get the file again.")


def _read_header(file: Any, size: int, name: str) -> tuple[dict[str, Any], int]:
    start = file.read(9)
    if len(start) < 9:
        raise ModelFileError(
            f"{name} is empty or cut off: it has {size} bytes, fewer than any model."
        )
    length = int.from_bytes(start[:8], "little")
    if start[8:] != b"{":
        raise ModelFileError(
            f"{name} is not a model file: it is not in the safetensors format."
        )
    if length > min(size - 8, MAX_HEADER):
        raise ModelFileError(
            f"{name} is cut off or damaged: it states a header of {length} bytes and "
            f"has {size} bytes in all. Get the file again."
        )
    file.seek(8)
    header = _parse(file.read(length), name, "header")
    return header, 8 + length


def _parse(text: Any, name: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, f"its {what} is not readable ({error})") from error
    if not isinstance(value, dict):
        raise _damaged(name, f"its {what} is not a table")
    return value


def _read_document(
    header: dict[str, Any], kind: str, newest: int, name: str
) -> tuple[int, dict[str, Any]]:
    metadata = header.pop("__metadata__", None)
    keys = {"format", "version", "checksum", "document"}
    if (
        not isinstance(metadata, dict)
        or not all(isinstance(v, str) for v in metadata.values())
        or not str(metadata.get("format", "")).startswith("brainweave-")
    ):
        raise ModelFileError(
            f"{name} is a safetensors file, but brainweave did not write it."
        )
    if not keys <= set(metadata):
        raise _damaged(name, f"its header lacks {', '.join(keys - set(metadata))}")
    if metadata["format"] != kind:
        raise ModelFileError(
            f"{name} is a {metadata['format']} file; a {kind} file is needed here."
        )
    version = metadata["version"]
    if not (version.isascii() and version.isdigit() and len(version) < 9):
        raise _damaged(name, f"its version is {version[:20]!r}")
    if int(version) > newest:
        raise ModelFileError(
            f"{name} is newer than this brainweave: it has format version {version}, "
            f"and versions up to {newest} can be read. Update brainweave."
        )
    text = metadata["document"]
    if _checksum(kind, version, text) != metadata["checksum"] or int(version) < 1:
        raise _damaged(name, "the checksum of its description does not match")
    return int(version), _parse(text, name, "description")


Table = dict[str, tuple[np.dtype[Any], tuple[int, ...], int, int, str]]


def _read_table(
    header: dict[str, Any], document: dict[str, Any], size: int, name: str
) -> Table:
    """Check that the arrays fill the file without gaps and are those described."""
    listed = document.get("arrays")
    if not isinstance(listed, dict) or set(listed) != set(header):
        raise _damaged(name, "its arrays are not those it describes")
    table: Table = {}
    spans = []
    for key, entry in header.items():
        code, shape, begin, end = _checked_entry(entry, f"{name}, array {key!r}")
        described = listed[key]
        if not isinstance(described, list) or described[:2] != [code, list(shape)]:
            raise _damaged(name, f"array {key!r} is not of the type and shape written")
        if len(described) != 3 or not isinstance(described[2], str):
            raise _damaged(name, f"array {key!r} has no checksum")
        table[key] = (DTYPES[code], shape, begin, end, described[2])
        spans.append((begin, end))
    position = 0
    for begin, end in sorted(spans):
        if begin != position:
            raise _damaged(name, "its arrays overlap or leave gaps")
        position = end
    if position != size:
        what = "cut off" if position > size else "damaged: it was appended to"
        raise ModelFileError(
            f"{name} is {what}: its arrays need {position} bytes, it has {size}. Get "
            "the file again."
        )
    return table


def _checked_entry(entry: Any, name: str) -> tuple[str, tuple[int, ...], int, int]:
    try:
        code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError):
        raise _damaged(name, "its entry is not complete") from None
    fits = isinstance(code, str) and code in DTYPES
    for numbers in (shape, offsets):
        fits = fits and isinstance(numbers, list) and len(numbers) <= 32
        fits = fits and all(type(n) is int and 0 <= n < 2**63 for n in numbers)
    if not fits or len(offsets) != 2:
        raise _damaged(name, "its type, shape or place is not valid")
    if offsets[1] - offsets[0] != prod(shape) * DTYPES[code].itemsize:
        raise _damaged(name, f"shape {shape} does not fit its place in the file")
    return code, tuple(shape), offsets[0], offsets[1]


def _verify(file: Any, start: int, table: Table, name: str) -> None:
    for key, (_, _, begin, end, digest) in table.items():
        file.seek(start + begin)
        total, left = hashlib.sha256(), end - begin
        while left:
            piece = file.read(min(left, CHUNK))
            if not piece:
                raise _damaged(name, "it became shorter while it was read")
            total.update(piece)
            left -= len(piece)
        if total.hexdigest() != digest:
            raise _damaged(name, f"the checksum of array {key!r} does not match")


def _map(
    path: Path, start: int, table: Table, size: int, name: str
) -> dict[str, NDArray[Any]]:
    if size == 0:
        return {k: np.empty(shape, dtype) for k, (dtype, shape, *_) in table.items()}
    try:
        # copy on write: pages are read when used, and the file is never changed
        whole = np.memmap(path, np.uint8, "c", offset=start, shape=(size,))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{name} cannot be mapped ({error}).") from error
    flat = np.asarray(whole)
    arrays = {}
    for key, (dtype, shape, begin, end, _) in table.items():
        part = flat[begin:end]
        if begin % dtype.itemsize or start % dtype.itemsize:
            part = part.copy()  # somebody else's writer: not aligned
        try:
            arrays[key] = part.view(dtype).reshape(shape)
        except ValueError as error:
            raise _damaged(name, f"array {key!r} has shape {shape}") from error
    return arrays
