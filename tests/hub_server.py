"""A small local server that answers as the hub does: listings, files with ranges, gates, revisions. No torch."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

COMMITS = {"main": "a" * 40, "v2": "b" * 40}
LARGE = 8 * 2**20  # from this size on a file is one of LFS


@dataclass
class Hub:
    """Repositories by name and revision; `requests` remembers what was asked, as (method, path, range)."""

    repositories: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    broken: set[int] = field(default_factory=set)  # statuses to answer everything with
    cut_at: int | None = None  # a body ends after so many bytes, once for each request
    ranges: bool = True
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    url: str = ""

    def add(self, repo: str, content: dict[str, bytes], revision: str = "main") -> None:
        self.repositories.setdefault(repo, {})[revision] = content

    def add_folder(self, repo: str, folder: Path, revision: str = "main") -> None:
        files = {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        self.add(repo, files, revision)

    def fetched(self) -> list[str]:
        """The files whose bytes were asked for, as often as they were."""
        return [
            path.partition("/resolve/")[2].partition("/")[2]
            for method, path, _ in self.requests
            if method == "GET" and "/resolve/" in path
        ]


def etag_of(data: bytes) -> str:
    """The hub's name of a content: sha256 of a large file, git's of a small one."""
    if len(data) >= LARGE:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@contextmanager
def served() -> Iterator[Hub]:
    """A hub that answers on a free port of this machine while the block runs."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            path = unquote(self.path.partition("?")[0]).strip("/")
            hub.requests.append((self.command, path, self.headers.get("Range") or ""))
            hub.tokens.append(self.headers.get("Authorization") or "")
            if hub.broken:
                return self._error(min(hub.broken), "", "broken")
            if path.startswith("api/models/"):
                return self._listing(path.removeprefix("api/models/"))
            repo, _, rest = path.partition("/resolve/")
            revision, _, name = rest.partition("/")
            return self._file(repo, revision, name, with_body)

        def _listing(self, path: str) -> None:
            repo, _, revision = path.partition("/revision/")
            found = self._content(repo, revision or "main")
            if found is None:
                return
            commit, content = found
            siblings: list[dict[str, Any]] = []
            for name, data in content.items():
                entry: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": etag_of(data)}
                if len(data) >= LARGE:
                    entry["lfs"] = {"sha256": etag_of(data), "size": len(data), "pointerSize": 134}
                siblings.append(entry)
            body = json.dumps(
                {
                    "id": repo,
                    "modelId": repo,
                    "sha": commit,
                    "siblings": siblings,
                    "tags": [],
                    "private": False,
                    "downloads": 0,
                    "likes": 0,
                }
            ).encode()
            self._headers(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
            self.wfile.write(body)

        def _file(self, repo: str, revision: str, name: str, with_body: bool) -> None:
            found = self._content(repo, revision)
            if found is None:
                return
            commit, content = found
            if repo in hub.gated and not self.headers.get("Authorization"):
                return self._error(401, "GatedRepo", "Access to this repository is restricted")
            if repo in hub.gated:
                return self._error(403, "GatedRepo", "You are not in the list")
            if name not in content:
                return self._error(404, "EntryNotFound", "Entry not found")
            data = content[name]
            headers = {"ETag": f'"{etag_of(data)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
            start = 0
            asked = self.headers.get("Range")
            if asked and hub.ranges:
                start = int(asked.removeprefix("bytes=").partition("-")[0])
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            body = data[start:]
            self._headers(206 if start else 200, {**headers, "Content-Length": str(len(body))})
            if with_body:
                cut = hub.cut_at if hub.cut_at is not None and len(data) >= LARGE else None
                self.wfile.write(body if cut is None else body[:cut])
                if cut is not None and len(body) > cut:
                    self.close_connection = True

        def _content(self, repo: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
            revisions = hub.repositories.get(repo)
            if revisions is None:
                self._error(401, "RepoNotFound", "Repository not found")
                return None
            known = {COMMITS[name]: name for name in revisions} | {name: name for name in revisions}
            if revision not in known:
                self._error(404, "RevisionNotFound", "Invalid rev id")
                return None
            return COMMITS[known[revision]], revisions[known[revision]]

        def _error(self, status: int, code: str, message: str) -> None:
            self._headers(status, {"X-Error-Code": code, "X-Error-Message": message, "Content-Length": "0"})

        def _headers(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def connected(hub: Hub, cache: Path, patch: Any) -> Iterator[None]:
    """Point the hub's library at `hub` and at an empty cache, whatever the environment says."""
    patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    patch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    patch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    patch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 2**16)
    patch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    patch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(cache / "no-token"))
    patch.delenv("HF_TOKEN", raising=False)
    yield
