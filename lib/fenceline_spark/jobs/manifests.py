"""The manifests of an archive: the ranges of a topic that it has, and their files.

Rule: a manifest is created if it is absent, under the next number. This create is the commit, so of two runs that
archive the same ranges one wins. Only files that a manifest names count.

Rule: a run makes the draft of its manifest before its first file, and removes the draft after its last. A run that
dies, or whose tasks fail, leaves its draft for good, as a slow run leaves it for a time. A file that neither a manifest
nor a draft accounts for is never removed, because its manifest may have been lost.

Stored: never rename a member. A manifest of another ``version`` is refused.

Not here: the files themselves (``archive_files``), and how a place keeps them (``archive_places``).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import PurePosixPath
from types import NoneType
from typing import Any, TypeVar

from fenceline.ports import AlreadyExists
from fenceline_spark.jobs.archive_places import ArchiveError, ArchivePlace

VERSION = 1
_FOLDER = "_fenceline"  # Spark and Hive read no folder whose name begins so
_KINDS: dict[str, tuple[type, ...]] = {"int": (int,), "int | None": (int, NoneType), "str": (str,)}
_DRAFTS = "." + "[0-9a-f]" * 32  # a run's id


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
    """The ranges and files that one run added."""

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
        left: Files of runs that died, or go on.
        unknown: Files of no such run: the manifests that named them were lost or damaged, or a user made them.
    """

    left: tuple[str, ...]
    unknown: tuple[str, ...]


_Part = TypeVar("_Part", ArchivedRange, ArchivedFile, Manifest)


class Manifests:
    """The manifests at one place, which every worker can write."""

    def __init__(self, place: ArchivePlace) -> None:
        self.place = place

    def of_topic(self, topic_id: str) -> list[Manifest]:
        """Return the manifests of one incarnation of a topic, in order.

        Raises:
            ArchiveError: One is missing, or damaged.
        """
        folder = f"{_FOLDER}/{topic_id}"
        stems = [PurePosixPath(path).stem for path in self.place.find(f"{folder}/*.json")]
        numbers = sorted(int(stem) for stem in stems if stem.isdigit())
        if numbers != [*range(len(numbers))]:
            what = "manifests of the archive are missing; restore them from a backup"
            raise ArchiveError(f"{what}: folder={self.place.name}/{folder}")
        return [self._parsed(f"{folder}/{_name(number)}") for number in numbers]

    def of_name(self, topic: str) -> list[Manifest]:
        """Return the manifests of every incarnation of a topic's name.

        Raises:
            ArchiveError: As ``of_topic``.
        """
        topic_ids = sorted({PurePosixPath(path).parent.name for path in self.place.find(f"{_FOLDER}/*/*.json")})
        found = [self.of_topic(topic_id) for topic_id in topic_ids]
        return [manifest for manifests in found for manifest in manifests if manifest.topic == topic]

    def begin(self, topic_id: str, run: str) -> None:
        """Note that a run begins, before it makes its first file: the draft of its manifest, empty yet.

        Raises:
            ArchiveError: The place cannot be written.
        """
        self.place.begin(draft_of(topic_id, run))

    def create(self, manifest: Manifest) -> None:
        """Create a manifest, whole and durable, unless one of this number exists. Its run has begun.

        Raises:
            TakenError: One exists.
            ArchiveError: It was not created: the place cannot be written, or its file system makes no hard links.
            OutcomeUnknownError: It may have been created, or may be later.
        """
        path = f"{_FOLDER}/{manifest.topic_id}/{_name(manifest.number)}"
        body = json.dumps(asdict(manifest), indent=1).encode()
        try:
            self.place.commit(draft_of(manifest.topic_id, manifest.run), path, body)
        except AlreadyExists as error:
            what = "another run archived these records first, and nothing was added; run the command again"
            raise TakenError(f"{what}: topic={manifest.topic} manifest={manifest.number}") from error

    def uncounted(self, topic: str, topic_id: str) -> Uncounted:
        """Return the files of this incarnation that no manifest names.

        Raises:
            ArchiveError: As ``of_topic``.
        """
        # The order matters: a run's draft exists before its first file, until a manifest names the files or they are
        # gone.
        pattern = f"topic={topic}/date=*/{topic_id}-*.parquet"
        files = self.place.find(pattern)
        runs = {PurePosixPath(draft).name[1:] for draft in self.place.find(f"{_FOLDER}/{topic_id}/{_DRAFTS}")}
        counted = {file.path for manifest in self.of_topic(topic_id) for file in manifest.files}
        others = [path for path in files if path not in counted]
        left = [path for path in others if _run_of(path) in runs]
        unknown = [path for path in others if _run_of(path) not in runs]
        if unknown:
            still = {*self.place.find(pattern)}  # a run that has ended meanwhile removed its own
            unknown = [path for path in unknown if path in still]
        return Uncounted(tuple(left), tuple(unknown))

    def end(self, topic_id: str, run: str) -> None:
        """Remove the draft of a run, whose other files are named or gone."""
        self.place.remove(draft_of(topic_id, run))

    def _parsed(self, path: str) -> Manifest:
        try:
            with self.place.open(path) as file:
                value: dict[str, Any] = json.loads(file.read())
            if value["version"] != VERSION:
                what = "a newer version made this manifest; read the archive with that one"
                raise ArchiveError(f"{what}: path={self.place.name}/{path}")
            ranges = tuple(_typed(ArchivedRange(**one)) for one in value.pop("ranges"))
            files = tuple(_typed(ArchivedFile(**one)) for one in value.pop("files"))
            manifest = _typed(Manifest(**value, ranges=ranges, files=files))
            if path != f"{_FOLDER}/{manifest.topic_id}/{_name(manifest.number)}":
                raise ValueError("it is that of another topic, or number")
            return manifest
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            what = f"a manifest is damaged ({error}); restore it from a backup"
            raise ArchiveError(f"{what}: path={self.place.name}/{path}") from error


def _name(number: int) -> str:
    return f"{number:010d}.json"


def draft_of(topic_id: str, run: str) -> str:
    """Return the path of a run's draft."""
    return f"{_FOLDER}/{topic_id}/.{run}"


def _run_of(path: str) -> str:
    """Return the run that made a Parquet file, by its name; nothing sensible for one that no run made."""
    return path.rpartition("/")[2].rsplit("-", 3)[-3:][0]


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
