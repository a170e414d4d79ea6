"""The manifests of an archive: which ranges of a topic it has, and in which files.

Rule: a manifest is created if it is absent, under the next number. That is the commit. Of two runs that archive the
same ranges, one creates it. Only files that a manifest names count.

Rule: a run makes the draft of its manifest before its first file, and removes it after its last. A run that dies leaves
it for good, as one that is only slow would. A file that neither a manifest nor a draft accounts for is never removed:
its manifest may have been lost.

Stored: never rename a member. A manifest of another ``version`` is refused.

Not here: the files themselves; see ``archive_files``.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

VERSION = 1
_FOLDER = "_fenceline"  # Spark and Hive read no folder whose name begins so
_KINDS: dict[str, tuple[type, ...]] = {"int": (int,), "int | None": (int, NoneType), "str": (str,)}
_DRAFTS = "." + "[0-9a-f]" * 32  # a run's id


class ArchiveError(Exception):
    """An archive that cannot be written or read so; the message says what to do."""


class TakenError(ArchiveError):
    """Another run created the manifest of this number first. What this run made does not count."""


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """The offsets of a partition that one manifest adds, and those that were no longer kept before them."""

    partition: int
    start: int
    end: int
    records: int
    lost_from: int | None = None  # offsets from here to ``start`` were not kept; None: none were lost


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A Parquet file with records of one partition and one day."""

    path: str  # below the archive's directory
    partition: int
    first_offset: int
    last_offset: int
    records: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one run added."""

    topic: str
    topic_id: str
    number: int
    run: str
    created_at: int  # ms
    ranges: tuple[ArchivedRange, ...]
    files: tuple[ArchivedFile, ...]
    version: int = VERSION

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class Uncounted:
    """Files that no manifest names.

    Attributes:
        left: Those of runs that died, or go on.
        unknown: Those of no such run. The manifests that named them were lost or damaged, or a user made them.
    """

    left: tuple[Path, ...]
    unknown: tuple[Path, ...]


_Part = TypeVar("_Part", ArchivedRange, ArchivedFile, Manifest)


class Manifests:
    """The manifests below one directory, which every worker can write."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def of_topic(self, topic_id: str) -> list[Manifest]:
        """Return the manifests of one incarnation of a topic, in order.

        Raises:
            ArchiveError: One is missing, or damaged.
        """
        folder = self.directory / _FOLDER / topic_id
        numbers = sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit())
        if numbers != [*range(len(numbers))]:
            raise ArchiveError(f"manifests of the archive are missing; restore them from a backup: folder={folder}")
        return [_parsed(folder / _name(number)) for number in numbers]

    def of_name(self, topic: str) -> list[Manifest]:
        """Return the manifests of every incarnation of a topic's name.

        Raises:
            ArchiveError: As ``of_topic``.
        """
        found = [self.of_topic(folder.name) for folder in sorted((self.directory / _FOLDER).glob("*"))]
        return [manifest for manifests in found for manifest in manifests if manifest.topic == topic]

    def begin(self, topic_id: str, run: str) -> None:
        """Note that a run begins, before it makes its first file: the draft of its manifest, empty yet.

        Raises:
            ArchiveError: The directory cannot be written.
        """
        folder = self.directory / _FOLDER / topic_id
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _draft(folder, run).open("x").close()
            sync_directory(folder)
        except OSError as error:
            raise self._unwritable(error) from error

    def create(self, manifest: Manifest) -> None:
        """Create a manifest, whole and durable, unless one of this number exists. Its run has begun.

        Raises:
            TakenError: One exists.
            ArchiveError: The directory cannot be written, or its file system makes no hard links.
        """
        folder = self.directory / _FOLDER / manifest.topic_id
        drafted, final = _draft(folder, manifest.run), folder / _name(manifest.number)
        try:
            with drafted.open("r+", encoding="utf-8") as file:
                json.dump(asdict(manifest), file, indent=1)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            # This link is the commit: of several runs one makes it. The others remove the files that they made.
            os.link(drafted, final)
        except FileExistsError as error:
            what = "another run archived these records first, and nothing was added; run the command again"
            raise TakenError(f"{what}: topic={manifest.topic} manifest={manifest.number}") from error
        except OSError as error:
            what = f"the archive's file system makes no hard links ({error.strerror}); name a directory on another one"
            raise ArchiveError(f"{what}: directory={self.directory}") from error
        sync_directory(folder)

    def _unwritable(self, error: OSError) -> ArchiveError:
        what = f"the directory cannot be written ({error.strerror}); make room, or name another one"
        return ArchiveError(f"{what}: to={self.directory}")

    def uncounted(self, topic: str, topic_id: str) -> Uncounted:
        """Return the files of this incarnation that no manifest names.

        Raises:
            ArchiveError: As ``of_topic``.
        """
        # In this order: a run's draft is there before its first file, until a manifest names them or they are gone.
        files = [*(self.directory / f"topic={topic}").glob(f"date=*/{topic_id}-*.parquet")]
        runs = {draft.name[1:] for draft in (self.directory / _FOLDER / topic_id).glob(_DRAFTS)}
        counted = {file.path for manifest in self.of_topic(topic_id) for file in manifest.files}
        others = [path for path in files if path.relative_to(self.directory).as_posix() not in counted]
        left = [path for path in others if _run_of(path) in runs]
        unknown = [path for path in others if _run_of(path) not in runs and path.exists()]
        return Uncounted(tuple(left), tuple(unknown))

    def end(self, topic_id: str, run: str) -> None:
        """Remove the draft of a run, whose other files are named or gone."""
        _draft(self.directory / _FOLDER / topic_id, run).unlink(missing_ok=True)


def sync_directory(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name(number: int) -> str:
    return f"{number:010d}.json"


def _draft(folder: Path, run: str) -> Path:
    return folder / f".{run}"


def _run_of(path: Path) -> str:
    """Return the run that made a Parquet file, by its name; nothing sensible for one that no run made."""
    return path.name.rsplit("-", 3)[-3:][0]


def _parsed(path: Path) -> Manifest:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if value["version"] != VERSION:
            raise ArchiveError(f"a newer version made this manifest; read the archive with that one: path={path}")
        ranges = tuple(_typed(ArchivedRange(**one)) for one in value.pop("ranges"))
        files = tuple(_typed(ArchivedFile(**one)) for one in value.pop("files"))
        manifest = _typed(Manifest(**value, ranges=ranges, files=files))
        if path != path.parent.parent / manifest.topic_id / _name(manifest.number):
            raise ValueError("it is that of another topic, or number")
        return manifest
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArchiveError(f"a manifest is damaged ({error}); restore it from a backup: path={path}") from error


def _typed(part: _Part) -> _Part:
    """Return a part of a manifest if its members have their types.

    Raises:
        ValueError: One has another type, or is a negative number.
    """
    for one in fields(part):
        value, kinds = getattr(part, one.name), _KINDS.get(str(one.type), (tuple,))
        if not isinstance(value, kinds) or (isinstance(value, int) and value < 0):
            raise ValueError(f"{one.name}={value!r}")
    return part
