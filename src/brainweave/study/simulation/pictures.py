"""The smallest pictures there are, to stand for stimuli on disk."""

import struct
import zlib

__all__ = ["one_colour_png"]


def one_colour_png(shade: float, size: int = 8) -> bytes:
    r"""Make a grey square as a PNG file; `shade` is from 0 (black) to 1 (white).

    Examples
    --------
    >>> one_colour_png(0.5)[:4]
    b'\x89PNG'
    """
    level = round(255 * min(max(shade, 0.0), 1.0))
    rows = (b"\x00" + bytes([level]) * size) * size  # filter type 0, then the pixels
    header = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)  # 8 bits, grey
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(rows)), _chunk(b"IEND"))
    )


def _chunk(kind: bytes, content: bytes = b"") -> bytes:
    checksum = zlib.crc32(kind + content)
    return (
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
    )
