"""Fetches files of a hub repository into the hub's own cache: listing, disk space, resume, errors. No torch.

`huggingface_hub` keeps no partial file from one process to the next, so large files go through a partial file of ours
with its own download; the library then finds the whole file in its cache and links it.
"""

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from framework.errors import FrameworkError, LoadError
from framework.loading.needs import Need
from framework.loading.source import cached_snapshot
from framework.spec import Bound

Progress = Callable[[int, int], None]
"""Told the bytes that are here and the bytes wanted, from any thread."""

NUM_CONNECTIONS = 4
LARGE_BYTES = 8 * 2**20  # smaller files are simply fetched again


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a listing; `etag` is the name the hub's cache gives its content, its sha256 where it is large."""

    path: str
    size_bytes: int
    etag: str | None


@dataclass(frozen=True, slots=True)
class Fetch:
    """What is to be done for one repository: `files` are all that are wanted, `missing` those to fetch."""

    repo: str
    revision: str | None
    commit: str
    key: str
    files: tuple[RemoteFile, ...]
    missing: tuple[RemoteFile, ...]
    partial_bytes: int

    @property
    def missing_bytes(self) -> int:
        return sum(file.size_bytes for file in self.missing) - self.partial_bytes


def plan_fetch(need: Need) -> Fetch | None:
    """Ask the hub which files of `need` are missing; None, without a connection, where all are here.

    Raises `LoadError` in one line: offline, not reachable, gated, not there, no such revision, wrong content.
    """
    from huggingface_hub import is_offline_mode

    snapshot = cached_snapshot(need.repo, need.revision)
    if snapshot is not None and need.is_here(snapshot, strict=not is_offline_mode()):
        return None
    if is_offline_mode():
        raise LoadError(
            f"{need.key}: '{need.repo}' is not on this machine and HF_HUB_OFFLINE is set, so nothing is fetched; "
            f"unset it, or give a local copy with {need.key}=FOLDER"
        )
    with explained(need.key, need.repo, need.revision):
        commit, listing = _listing(need.repo, need.revision)

        def read(name: str) -> Path:
            return _link(need.repo, name, need.revision)

        chosen = dict.fromkeys(need.choose(list(listing), read))
    files = tuple(listing[name] for name in chosen)
    blobs = _blobs(need.repo)
    linked = blobs.parent / "snapshots" / commit
    if all((linked / file.path).exists() for file in files):
        return None
    missing = tuple(file for file in files if not _is_cached(linked, blobs, file))
    partial = sum(_partial_bytes(blobs, file) for file in missing)
    return Fetch(need.repo, need.revision, commit, need.key, files, missing, partial)


def check_space(fetches: Sequence[Fetch], bound: Bound | None = None) -> int:
    """Return the free bytes of the cache's disk. Raises `LoadError` where the files do not fit on it or in `bound`."""
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE)
    nearest = next(folder for folder in (cache, *cache.parents) if folder.exists())
    usage = shutil.disk_usage(nearest)
    free = usage.free
    wanted = sum(fetch.missing_bytes for fetch in fetches)
    names = ", ".join(f"'{fetch.repo}'" for fetch in fetches)
    if bound is not None and wanted > bound.of(usage.total, free):
        allowed = amount(bound.of(usage.total, free))
        raise LoadError(f"{fetches[0].key}: {names} needs {amount(wanted)} more, and budget.disk leaves {allowed}")
    if wanted > free:
        raise LoadError(
            f"{fetches[0].key}: {names} needs {amount(wanted)} more and {amount(free)} are free in "
            f"'{cache}'; free some, or put the cache elsewhere with HF_HUB_CACHE"
        )
    return free


def fetch_files(fetch: Fetch, progress: Progress) -> Path:
    """Fetch what is missing, several files at once, continuing what an earlier try left; return the snapshot.

    An interrupt leaves what has arrived. Raises `LoadError` in one line.
    """
    _quiet_library()
    counter = _Counter(fetch, progress)
    with explained(fetch.key, fetch.repo, fetch.revision), ThreadPoolExecutor(NUM_CONNECTIONS) as pool:
        largest_first = sorted(fetch.missing, key=lambda file: -file.size_bytes)
        waiting = [pool.submit(_fetch_one, fetch, file, counter) for file in largest_first]
        try:
            for future in waiting:
                future.result()
        except BaseException:
            counter.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    for file in fetch.files:
        _link(fetch.repo, file.path, fetch.revision)
    found = cached_snapshot(fetch.repo, fetch.revision)
    assert found is not None
    return found


@dataclass(slots=True)
class _Counter:
    """Adds up what arrives in all threads; `stop` ends them at their next piece."""

    fetch: Fetch
    progress: Progress
    stop: threading.Event = field(default_factory=threading.Event)
    _lock: Any = field(default_factory=threading.Lock)
    _here: int = 0
    _total: int = 0

    def __post_init__(self) -> None:
        self._total = sum(file.size_bytes for file in self.fetch.files)
        self._here = self._total - self.fetch.missing_bytes
        self.progress(self._here, self._total)

    def add(self, size: int) -> None:
        with self._lock:
            self._here += size
            here = self._here
        self.progress(here, self._total)


class _Stopped(Exception):
    """Another file failed, or the user stopped the run."""


class _Watched:
    """The partial file, as the library writes to it."""

    def __init__(self, file: BinaryIO, counter: _Counter) -> None:
        self._file, self._counter = file, counter

    def write(self, data: bytes) -> int:
        if self._counter.stop.is_set():
            raise _Stopped
        self._counter.add(len(data))
        return self._file.write(data)

    def truncate(self) -> int:
        """The server would not continue, so the file starts again: what was counted is taken back."""
        end = self._file.seek(0, 2)
        self._counter.add(-end)
        self._file.seek(0)
        return self._file.truncate()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _fetch_one(fetch: Fetch, file: RemoteFile, counter: _Counter) -> None:
    if counter.stop.is_set():
        raise _Stopped
    if file.etag is None or file.size_bytes < LARGE_BYTES:
        _link(fetch.repo, file.path, fetch.revision)
        counter.add(file.size_bytes)
        return
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    blobs = _blobs(fetch.repo)
    blobs.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(blobs / f"{file.etag}.lock"):  # two processes must not write to one partial file
        if (blobs / file.etag).exists():  # the same content under another name
            counter.add(file.size_bytes)
        else:
            _fetch_large(fetch, file, blobs, counter)
    (blobs / f"{file.etag}.lock").unlink(missing_ok=True)


def _fetch_large(fetch: Fetch, file: RemoteFile, blobs: Path, counter: _Counter) -> None:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    partial = _partial(blobs, file)
    with partial.open("ab") as opened:
        start = opened.tell()
        http_get(
            hf_hub_url(fetch.repo, file.path, revision=fetch.commit),
            _Watched(opened, counter),  # type: ignore[arg-type]
            resume_size=start,
            headers=build_hf_headers(),
            expected_size=file.size_bytes,
        )
    if start and len(file.etag or "") == 64 and _sha256(partial) != file.etag:
        partial.unlink()
        raise LoadError(f"{fetch.key}: '{fetch.repo}/{file.path}' arrived damaged and was deleted; run it again")
    partial.replace(blobs / str(file.etag))


def amount(size_bytes: float) -> str:
    """A size for people: `812 MiB`, `117.5 GiB`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return f"{size_bytes:.0f} bytes"


def _quiet_library() -> None:
    """Progress and retries are ours to show, and its lines repeat addresses."""
    from huggingface_hub.utils import disable_progress_bars, logging  # type: ignore[attr-defined]

    disable_progress_bars()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]


def _listing(repo: str, revision: str | None) -> tuple[str, dict[str, RemoteFile]]:
    from huggingface_hub import HfApi

    info = HfApi().model_info(repo, revision=revision, files_metadata=True)
    files = {}
    for sibling in info.siblings or ():
        etag = sibling.lfs.sha256 if sibling.lfs is not None else sibling.blob_id
        files[sibling.rfilename] = RemoteFile(sibling.rfilename, sibling.size or 0, etag)
    return str(info.sha), files


def _link(repo: str, name: str, revision: str | None) -> Path:
    """Have the library put one file into its cache; one whose content is there already is only linked."""
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(repo, name, revision=revision))


def _blobs(repo: str) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo, repo_type="model") / "blobs"


def _is_cached(snapshot: Path, blobs: Path, file: RemoteFile) -> bool:
    return (snapshot / file.path).exists() or (file.etag is not None and (blobs / file.etag).is_file())


def _partial(blobs: Path, file: RemoteFile) -> Path:
    return blobs / f"{file.etag}.partial.incomplete"


def _partial_bytes(blobs: Path, file: RemoteFile) -> int:
    partial = _partial(blobs, file)
    return partial.stat().st_size if partial.is_file() else 0


def _sha256(file: Path) -> str:
    import hashlib

    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


@contextmanager
def explained(key: str, repo: str, revision: str | None) -> Iterator[None]:
    """Turn whatever the hub's library raises into one line. Addresses are never repeated: they may hold signatures."""
    from huggingface_hub import errors

    try:
        yield
    except FrameworkError:
        raise
    except errors.GatedRepoError as error:
        raise LoadError(
            f"{key}: '{repo}' is gated: accept its terms at {_page(repo)} and log in with `hf auth login`"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise LoadError(f"{key}: '{repo}' has no revision '{revision or 'main'}'") from error
    except errors.RepositoryNotFoundError as error:
        raise LoadError(
            f"{key}: the hub has no '{repo}', or it is private and needs `hf auth login`; see {_page(repo)}"
        ) from error
    except errors.HFValidationError as error:
        raise LoadError(f"{key}: '{repo}' is no name of a repository") from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "an unknown status")
        hint = "the token is refused: log in with `hf auth login`" if status in (401, 403) else "try again later"
        raise LoadError(f"{key}: the hub answered {status} for '{repo}'; {hint}") from error
    except Exception as error:
        if not _is_connection(error):
            raise
        raise LoadError(
            f"{key}: the connection to the hub failed for '{repo}' ({type(error).__name__}); "
            f"what has arrived is kept: run it again"
        ) from error


def _is_connection(error: BaseException) -> bool:
    """Whether the network or the disk failed, whichever HTTP library the hub's version uses."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0].startswith(("http", "requests"))


def _page(repo: str) -> str:
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{repo}"
