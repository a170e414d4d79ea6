"""Places of archives: a directory, or a bucket. Both hold the same files under the same names.

Rule: a file is whole and durable as soon as it has its name, and each name is given once. In a bucket every create is
conditional (``If-None-Match: *``), and a create that was not answered is sent again. A run that then finds its own
bytes under the name has created the file.

Not here: which files count; see ``manifests``.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Protocol

from fenceline.errors import FencelineError, OutcomeUnknownError
from fenceline.log.retry import Attempts
from fenceline.ports import AlreadyExists, NotFound, StoreFact
from fenceline.runtime import Runtime, ThreadRuntime
from fenceline.settings import bucket_and_prefix

if TYPE_CHECKING:
    from fenceline.ports import ObjectStore

_BUCKET = "s3://"
_ONE_SLASH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
_EVERY = 2**31  # lines of a listing
# A body is sent in one piece, so this is the time that one takes, on a slow line, too.
_SEND_MS = 120_000
_UNDECIDED = (
    "the bucket did not answer, and the manifest may have been added, or may come yet; run the command again to go on"
)


class ArchiveError(Exception):
    """An archive that cannot be written or read so; the message says what to do."""


class ArchivePlace(Protocol):
    """The place of an archive. Paths are below it, with ``/``."""

    name: str

    def find(self, pattern: str) -> Sequence[str]:
        """Return the paths of all files that match ``pattern``, in which a wildcard matches no ``/``."""

    def open(self, path: str) -> IO[bytes]:
        """Open a file to read it.

        Raises:
            FileNotFoundError: There is none.
        """

    def begin(self, path: str) -> None:
        """Make an empty file of this name, which no other process makes."""

    def commit(self, draft: str, path: str, body: bytes) -> None:
        """Make the file ``path``, unless there is one.

        Args:
            draft: A file that this process has begun, and that the body may go through.

        Raises:
            AlreadyExists: There is one of other bytes.
            OutcomeUnknownError: It may be there, or come yet.
            ArchiveError: It was not made.
        """

    def new_file(self, path: str) -> IO[bytes]:
        """Return a new file to write to. What is not kept is gone, or has no meaning."""

    def keep(self, path: str, file: IO[bytes]) -> None:
        """Give a new file its name, whole and durable. No other process gives one this name."""

    def has(self, path: str) -> bool:
        """Return True if there is a file of this name."""

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""


def place_of(to: str | Path) -> ArchivePlace:
    """Return the place that is named, as every process on this machine knows it.

    Raises:
        ArchiveError: It is on a store that can hold no archive, or a URL that was spoilt.
    """
    text = str(to).removeprefix("file://")
    if text.startswith(_BUCKET):
        return _bucket(text)
    if _ONE_SLASH.match(text):  # pathlib makes this of any URL, and it would be a folder below this one
        raise ArchiveError(f"a URL has two slashes, and no Path may be made of it; name the place as a string: to={to}")
    if "://" in text:
        what = "an archive is written to a bucket of S3, or to a directory that is mounted on every worker"
        raise ArchiveError(f"{what}; mount that store, name a directory, or s3://BUCKET[/PREFIX]: to={to}")
    return DirectoryPlace(Path(text).resolve())


def check_place(to: str | Path) -> None:
    """Look whether an archive can be at this place, as far as that shows before anything is written.

    Raises:
        ArchiveError: It cannot. The message says what to do.
    """
    text = str(to)
    if not text.startswith(_BUCKET):
        place_of(to)
        return
    bucket, prefix = _parsed(text)
    with _facts(text):
        store = _opened(bucket, prefix)
        try:
            store.check()
        finally:
            store.close()


class DirectoryPlace:
    """A directory that the driver and every worker can write, on a file system with hard links."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.name = str(root)

    def find(self, pattern: str) -> Sequence[str]:
        return [path.relative_to(self._root).as_posix() for path in self._root.glob(pattern)]

    def open(self, path: str) -> IO[bytes]:
        return (self._root / path).open("rb")

    def begin(self, path: str) -> None:
        whole = self._root / path
        try:
            whole.parent.mkdir(parents=True, exist_ok=True)
            whole.open("x").close()
            _sync(whole.parent)
        except OSError as error:
            raise self._unwritable(error) from error

    def commit(self, draft: str, path: str, body: bytes) -> None:
        drafted, final = self._root / draft, self._root / path
        try:
            with drafted.open("r+b") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            # This link is the commit. Of several runs one makes it, and the others remove the files that they made.
            os.link(drafted, final)
        except FileExistsError as error:
            # It is this run's where a server made the link and its answer was lost, as link(2) says of NFS.
            if not final.samefile(drafted):
                raise AlreadyExists(path) from error
        except OSError as error:
            what = f"the archive's file system makes no hard links ({error.strerror}); name a directory on another one"
            raise ArchiveError(f"{what}: directory={self.name}") from error
        _sync(final.parent)

    def new_file(self, path: str) -> IO[bytes]:
        whole = self._root / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        return whole.open("xb")

    def keep(self, path: str, file: IO[bytes]) -> None:
        file.flush()
        os.fsync(file.fileno())
        file.close()
        _sync((self._root / path).parent)

    def has(self, path: str) -> bool:
        return (self._root / path).exists()

    def remove(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)

    def _unwritable(self, error: OSError) -> ArchiveError:
        what = f"the directory cannot be written ({error.strerror}); make room, or name another one"
        return ArchiveError(f"{what}: to={self.name}")


class BucketPlace:
    """A bucket of S3, below a prefix. Each worker has leave to put, get, list and delete there.

    Args:
        objects: The bucket, below that prefix.
    """

    def __init__(self, name: str, objects: ObjectStore, runtime: Runtime | None = None) -> None:
        self.name = name.rstrip("/")
        self._objects = objects
        self._runtime = runtime or ThreadRuntime()

    def find(self, pattern: str) -> Sequence[str]:
        prefix = pattern[: min(at for at in map(pattern.find, "*[") if at >= 0)]
        with _facts(self.name):
            listed = self._objects.list(prefix, limit=_EVERY)
        depth = pattern.count("/")
        return [one.key for one in listed if one.key.count("/") == depth and PurePosixPath(one.key).match(pattern)]

    def open(self, path: str) -> IO[bytes]:
        with _facts(self.name):
            try:
                return io.BytesIO(self._objects.get(path).body)
            except NotFound as error:
                raise FileNotFoundError(f"{self.name}/{path}") from error

    def begin(self, path: str) -> None:
        self._create_own(path, b"")

    def commit(self, draft: str, path: str, body: bytes) -> None:  # noqa: ARG002 - a directory's
        with _facts(self.name, is_commit=True):
            try:
                # This create is the commit. Of several runs one makes it, and the others remove the files that they
                # made.
                self._create(path, body)
            except AlreadyExists:
                # It may be this run's, because an answer was lost: the body has the run's id.
                if self._objects.get(path).body != body:
                    raise

    def new_file(self, path: str) -> IO[bytes]:  # noqa: ARG002 - it has no name yet
        return tempfile.TemporaryFile()

    def keep(self, path: str, file: IO[bytes]) -> None:
        file.seek(0)
        self._create_own(path, file.read())
        file.close()

    def has(self, path: str) -> bool:
        with _facts(self.name):
            return any(one.key == path for one in self._objects.list(path, limit=1))

    def remove(self, path: str) -> None:
        with _facts(self.name):
            self._objects.delete(path)

    def _create_own(self, path: str, body: bytes) -> None:
        """Create an object whose name no other process gives. One that exists is of an answer that was lost."""
        with _facts(self.name):
            try:
                self._create(path, body)
            except AlreadyExists:
                return

    def _create(self, path: str, body: bytes) -> None:
        attempts = Attempts(self._runtime, f"to={self.name} path={path}")
        attempts.until_done(lambda: self._objects.create(path, body, {}))


@contextmanager
def _facts(name: str, *, is_commit: bool = False) -> Iterator[None]:
    """Raise the reason why a bucket cannot be used as one line.

    Raises:
        ArchiveError: It cannot be used.
        OutcomeUnknownError: What became of a commit is not known.
    """
    try:
        yield
    except AlreadyExists:
        raise
    except OutcomeUnknownError as error:
        if not is_commit:
            raise ArchiveError(f"the bucket did not answer; run the command again: {error.detail}") from error
        raise OutcomeUnknownError(f"{_UNDECIDED}: to={name}") from error
    except FencelineError as error:
        raise ArchiveError(f"the archive's bucket cannot be used: {error.detail}") from error
    except StoreFact as fact:
        if is_commit:  # there is a manifest, and whose it is could not be read
            raise OutcomeUnknownError(f"{_UNDECIDED}: to={name}") from fact
        raise ArchiveError(str(fact)) from fact


def _parsed(text: str) -> tuple[str, str]:
    try:
        return bucket_and_prefix(text)
    except ValueError:
        what = "an archive on S3 is named by its bucket, and a prefix"
        raise ArchiveError(f"{what}; name it as s3://BUCKET or s3://BUCKET/PREFIX: to={text}") from None


def _opened(bucket: str, prefix: str, **options: Any) -> Any:
    from fenceline.adapters.sqlite.directory import CannotOpen
    from fenceline_http import wiring  # only here: an archive in a directory needs no client of AWS

    try:
        return wiring.bucket_of(bucket, prefix, **options)
    except CannotOpen as error:
        raise ArchiveError(str(error)) from error


@cache
def _bucket(text: str) -> BucketPlace:
    """Return this process's own bucket. PySpark reuses its workers, so connections outlive a task."""
    bucket, prefix = _parsed(text)
    with _facts(text):
        return BucketPlace(text, _opened(bucket, prefix, connect_ms=_SEND_MS, answer_ms=_SEND_MS))


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
