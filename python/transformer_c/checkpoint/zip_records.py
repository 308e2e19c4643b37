"""Reads the records of a zip archive in the form that torch.save writes, and no other form that zip allows.

Such an archive contains its records uncompressed, one after the other, each once, all in one folder; the directory at the
end lists their positions. Anything else is refused: as every record is stored once and uncompressed, no archive can unpack
to more than its size.
"""

from __future__ import annotations

import struct
import zlib
from io import BufferedReader
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .errors import CheckpointError
from .files import read_exactly

# Section 4.3 of the zip specification (APPNOTE.TXT): signature, then as named in the unpacking below.
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END_64_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")

_FLAG_DESCRIPTOR = 1 << 3  # sizes follow the data; the local header has zeros
_FLAG_UTF8 = 1 << 11
_IN_EXTRA = 0xFFFFFFFF  # the number is in the zip64 extra field instead


class Record(NamedTuple):
    """The position of a record in the file, and the CRC-32 of its bytes (0: not computed by the writer)."""

    offset: int
    size: int
    crc: int


class ZipRecords:
    """The records of an archive.

    Attributes
    ----------
    folder : str
        The one folder that all records are in.
    """

    def __init__(self, file: BufferedReader, size: int) -> None:
        self._file = file
        self._records: dict[str, Record] = {}
        self.folder = ""
        start, length, count = self._find_directory(size)
        self._read_directory(start, length, count)

    def __contains__(self, name: str) -> bool:
        return f"{self.folder}/{name}" in self._records

    def size(self, name: str) -> int:
        """The number of bytes in a record; `name` is without the folder."""
        return self._record(name).size

    def read(self, name: str) -> np.ndarray:
        """The bytes of a record in memory of their own, as uint8."""
        record = self._record(name)
        data = np.empty(record.size, np.uint8)
        read_exactly(self._file, record.offset, data)
        # torch.serialization.set_crc32_options(False) leaves 0 in place of every checksum.
        if record.crc and zlib.crc32(data) != record.crc:
            raise CheckpointError(f"its record {name!r} is damaged: the bytes do not match their checksum")
        return data

    def _record(self, name: str) -> Record:
        return self._records[f"{self.folder}/{name}"]

    def _bytes(self, offset: int, length: int) -> bytes:
        data = bytearray(length)
        read_exactly(self._file, offset, data)
        return bytes(data)

    def _find_directory(self, size: int) -> tuple[int, int, int]:
        """(start, length, number of entries) of the directory, read from the end of the file."""
        end = size - _END.size
        if end < 0 or self._bytes(end, 4) != b"PK\5\6":
            raise CheckpointError("the zip archive is cut off, or is followed by something else")
        _, disk, start_disk, count_here, count, length, start, comment = _END.unpack(self._bytes(end, _END.size))
        locator = end - _END_64_LOCATOR.size
        if locator >= 0 and self._bytes(locator, 4) == b"PK\6\7":
            _, _, end_64, _ = _END_64_LOCATOR.unpack(self._bytes(locator, _END_64_LOCATOR.size))
            end = locator - _END_64.size
            if end < 0 or end_64 != end or self._bytes(end, 4) != b"PK\6\6":
                raise CheckpointError("the zip archive's end is damaged")
            short = (count, length, start)
            _, _, _, _, disk, start_disk, count_here, count, length, start = _END_64.unpack(self._bytes(end, _END_64.size))
            if any(a not in (b, ones) for a, b, ones in zip(short, (count, length, start), (0xFFFF, _IN_EXTRA, _IN_EXTRA), strict=True)):
                raise CheckpointError("the zip archive contradicts itself about its directory")
        if disk or start_disk or comment or count_here != count or start + length != end or count * _CENTRAL.size > length:
            raise CheckpointError("the zip archive's end is damaged, or it is not as torch.save writes it")
        return start, length, count

    def _read_directory(self, start: int, length: int, count: int) -> None:
        directory, at = self._bytes(start, length), 0
        extents = []
        for _ in range(count):
            if length - at < _CENTRAL.size or directory[at : at + 4] != b"PK\1\2":
                raise CheckpointError("the zip archive's directory is damaged")
            fields = _CENTRAL.unpack_from(directory, at)
            _, _, _, flags, method, _, _, crc, packed, size, name_length, extra_length, comment_length, disk, _, _, header = fields
            at += _CENTRAL.size
            name_bytes = directory[at : at + name_length]
            extra = directory[at + name_length : at + name_length + extra_length]
            at += name_length + extra_length + comment_length
            name = self._accept_name(name_bytes)
            size, packed, header = _widen(extra, size, packed, header)
            if method or size != packed:
                raise CheckpointError(
                    f"its record {name!r} is compressed, unlike torch.save's: if it is a TorchScript program, save its state dict"
                )
            if flags & ~(_FLAG_DESCRIPTOR | _FLAG_UTF8) or disk:
                raise CheckpointError(f"its record {name!r} is encrypted, or of a kind that torch.save never writes")
            offset = self._check_local_header(name, name_bytes, header, size, start, flags)
            self._records[name] = Record(offset, size, crc)
            extents.append((header, offset + size, name))
        if at != length:
            raise CheckpointError("the zip archive's directory is damaged")
        extents.sort()
        for (_, end, name), (following, _, other) in pairwise(extents):
            if following < end:
                raise CheckpointError(f"its records {name!r} and {other!r} overlap")

    def _accept_name(self, name_bytes: bytes) -> str:
        try:
            name = name_bytes.decode()
        except UnicodeDecodeError:
            raise CheckpointError("a name in the zip archive is not UTF-8") from None
        folder, *rest = name.split("/")
        if not rest or any(part in ("", ".", "..") for part in (folder, *rest)) or "\\" in name or not name.isprintable():
            raise CheckpointError(f"it has a record with the name {name[:80]!r}; expected a plain name in a folder")
        if name in self._records:
            raise CheckpointError(f"it has two records with the name {name[:80]!r}")
        self.folder = self.folder or folder
        if folder != self.folder:
            raise CheckpointError(f"it has records in two folders, {self.folder[:80]!r} and {folder[:80]!r}")
        return name

    def _check_local_header(self, name: str, name_bytes: bytes, header: int, size: int, limit: int, flags: int) -> int:
        """The offset of a record's bytes; the header before them must agree with the directory."""
        if header + _LOCAL.size + len(name_bytes) > limit:
            raise CheckpointError(f"its record {name!r} is outside the file")
        fields = _LOCAL.unpack(self._bytes(header, _LOCAL.size))
        signature, _, local_flags, method, _, _, _, _, local_size, name_length, extra_length = fields
        offset = header + _LOCAL.size + name_length + extra_length
        if signature != b"PK\3\4" or method or local_flags != flags or name_length != len(name_bytes):
            raise CheckpointError(f"the header of its record {name!r} is damaged")
        if self._bytes(header + _LOCAL.size, name_length) != name_bytes:
            raise CheckpointError(f"the header of its record {name!r} has another name")
        if not flags & _FLAG_DESCRIPTOR and local_size not in (size, _IN_EXTRA):
            raise CheckpointError(f"the header of its record {name!r} has another size")
        if offset + size > limit:
            raise CheckpointError(f"its record {name!r} claims {size} bytes, more than the file has")
        return offset


def _widen(extra: bytes, *numbers: int) -> list[int]:
    """Numbers of a directory entry, with those that did not fit 32 bits taken from its zip64 field, in order."""
    field = b""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            field = extra[at + 4 : at + 4 + length]
        at += 4 + length
    widened = []
    for number in numbers:
        if number == _IN_EXTRA:
            if len(field) < 8:
                raise CheckpointError("the zip archive's directory is damaged: a size is missing")
            number, field = int.from_bytes(field[:8], "little"), field[8:]
        widened.append(number)
    return widened
