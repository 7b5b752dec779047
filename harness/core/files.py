"""Files: reading TOML against types, and writing so that a crash leaves either the old state or the new one."""

from __future__ import annotations

import contextlib
import csv
import errno
import gzip
import hashlib
import io
import itertools
import json
import os
import re
import stat
import sys
import zlib
from pathlib import Path
from typing import (
    Any,
    BinaryIO,
    Dict,
    Iterator,
    List,
    Mapping,
    Match,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
    get_args,
    get_type_hints,
)

import msgspec

from harness.core.errors import InvalidValueError, StoreError, UnknownNameError
from harness.core.terminal import available_hint

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Made = TypeVar("Made")

_WORDS = {
    "array": "a list", "object": "a table", "str": "a text", "int": "a whole number", "float": "a number",
    "bool": "true or false",
}  # fmt: skip


MOST_BYTES = 1 << 30  # of a file that is read as a whole: the largest of the data sets, COCO's list, has half of it

_MOST_TOML_BYTES = 1 << 20  # the parser's time grows with the square of some texts
_MOST_DIGITS = 400  # of a float; older releases of Python take time with the square of a number's digits


def read_bounded(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of an untrusted file; ValueError if it is larger than `most_bytes`."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_size <= most_bytes:
            content = file.read((status.st_size if stat.S_ISREG(status.st_mode) else most_bytes) + 1)
            if len(content) <= most_bytes:
                return content
    raise ValueError(f"it has more than {most_bytes:,} bytes")


def read_unpacked(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """As `read_bounded`, of a file that may be gzipped, whatever its name; the bound is that of what is in it."""
    content = read_bounded(path, most_bytes)
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            content = file.read(most_bytes + 1)
    except (EOFError, zlib.error) as error:  # OSError of a header or a checksum is the caller's
        raise ValueError(f"its gzip data is damaged: {error}") from error
    if len(content) > most_bytes:
        raise ValueError(f"it has more than {most_bytes:,} bytes")
    return content


def read_json(path: Path) -> Any:
    """The value in a UTF-8 JSON file; ValueError if it is invalid, too large or nested too deeply."""

    def whole_number(text: str) -> int:
        if len(text) > _MOST_DIGITS:
            raise ValueError(f"a number has {len(text)} digits")
        return int(text)

    try:
        return json.loads(read_bounded(path).decode("utf-8"), parse_int=whole_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_csv(path: Path) -> Tuple[List[str], List[Tuple[int, List[str]]]]:
    """The header of a CSV file, and its non-empty rows, each with its line number."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            return next(reader, []), [(reader.line_num, cells) for cells in reader if cells]
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}", "name a CSV file") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidValueError(f"{path} is not CSV in UTF-8: {error}") from error


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal digits; StoreError if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}", "name an existing file") from error


def read_toml(path: Path) -> Dict[str, Any]:
    try:
        return tomllib.loads(read_bounded(path, _MOST_TOML_BYTES).decode("utf-8").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"{path} is not a readable TOML file: it is no text in UTF-8") from error
    except (ValueError, RecursionError, OSError) as error:
        raise InvalidValueError(f"{path} is not a readable TOML file: {error}") from error


def typed(table: Mapping[str, Any], kind: Type[Made], what: str = "the file") -> Made:
    """A table of a TOML file as a `msgspec.Struct`; errors name the key, its value and what was expected."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        place = place.strip(".`")
        key = re.fullmatch("Object (.+) field `(.+)`", problem)
        where = f"{place} of {what}" if place else what
        if key and "unknown" in key[1]:
            hint = available_hint(key[2], _keys(kind, place))
            raise UnknownNameError(f"key {key[2]!r} of {where} is unknown", hint) from error
        if key:
            raise InvalidValueError(f"key {key[2]!r} of {where} is missing") from error

        def in_words(match: Match[str]) -> str:
            names = [name for name in match[1].split(" | ") if name != "null"]
            return " or ".join(_WORDS.get(name, name) for name in names if name != "int" or "float" not in names)

        expected = re.sub("`([^`]+)`", in_words, problem.partition(", got")[0])
        value: Any = table
        for step in itertools.takewhile(lambda step: step != "...", _steps(place)):
            value = value[step]
        raise InvalidValueError(f"{where} is {value!r}, {expected[0].lower()}{expected[1:]}") from error


def _steps(place: str) -> List[Union[str, int]]:
    """`cpu.clusters[1]` as `cpu`, `clusters`, 1; a key of a free-form table is `...`, as msgspec does not report it."""
    steps = re.findall(r"([^.\[\]]+)|\[(\d+|\.\.\.)\]", place)
    return [name or (number if number == "..." else int(number)) for name, number in steps]


def _keys(kind: Any, place: str) -> Sequence[str]:
    for step in _steps(place):
        if isinstance(step, int):
            kind = get_args(kind)[0]
        else:
            kind = get_args(kind)[1] if step == "..." else get_type_hints(kind)[step]
        if type(None) in get_args(kind):  # a table that may be missing
            kind = get_args(kind)[0]
    return kind.__struct_encode_fields__


def is_shared(folder: Path) -> bool:
    """Whether every user may create files in a folder, as in /tmp, so that its content is not trusted."""
    return bool(folder.stat().st_mode & stat.S_IWOTH)


def make_own_folder(folder: Path) -> None:
    """Make a folder, private in a shared place; PermissionError if another user could change it."""
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700 if is_shared(folder.parent) else 0o777, exist_ok=True)
    for part in [folder, *folder.parents]:
        if is_shared(part.parent):
            status, is_sticky = part.lstat(), part.parent.stat().st_mode & stat.S_ISVTX
            # Without the sticky bit others can move the folder, regardless of its own mode.
            is_open = (
                is_sticky and status.st_mode & stat.S_IWOTH and (part == folder or not status.st_mode & stat.S_ISVTX)
            )
            if is_open or status.st_uid not in (0, os.geteuid()):
                why = f"it is in a shared folder and another user can change it (owner {status.st_uid})"
                raise PermissionError(errno.EPERM, why, str(part))


def is_link_of_another(path: Path) -> bool:
    """Whether a path is a link that another user laid in a shared folder."""
    return os.path.islink(path) and is_shared(path.parent) and os.lstat(path).st_uid not in (0, os.geteuid())


def refuse_link_of_another(path: Path) -> None:
    """Raise PermissionError if the path, or a folder of it, is such a link."""
    for part in (path.absolute(), *path.absolute().parents):
        if is_link_of_another(part):
            raise PermissionError(errno.EPERM, "it is a link of another user", str(part))


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which replaces `path` as a whole when the block ends; its folder is made.

    Once this returns, the content is on the medium; after an error `path` is as it was.
    """
    refuse_link_of_another(path)
    target = path.resolve()  # a link stays a link
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if draft.is_symlink() or draft.exists():
            draft.unlink()
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    finally:
        if draft.exists():
            draft.unlink()
    _sync_directory(target.parent)


def write_durably(path: Path, content: bytes) -> None:
    """Replace `path` as a whole, making its folder; once this returns, the content is on the medium."""
    with replacing(path) as file:
        file.write(content)


def write_output(path: Path, content: bytes) -> None:
    """`write_durably` for a file that the user named."""
    try:
        write_durably(path, content)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}", "make room, allow it, or name another file") from error


def replace_durably(draft: Path, path: Path) -> None:
    """Give a file that was written as a draft its name, in the same folder; once this returns, it is on the medium."""
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(draft, path)
    _sync_directory(path.parent)


def remove_durably(path: Path) -> None:
    """Remove `path`; once this returns, it is gone from the medium."""
    path.unlink()
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
