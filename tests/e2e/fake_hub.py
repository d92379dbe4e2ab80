"""A hub of models on two free loopback ports: the hub, and the server with the contents of large files ("the other
host") that it redirects to. It answers as Hugging Face does: revisions, file lists with hashes, HEAD and GET of
contents, redirects, ranges with If-Range, gated repositories. Faults are scripted by file."""

import collections
import functools
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WAIT_S = 60  # limit of every wait in a handler


@functools.lru_cache
def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@functools.lru_cache
def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Repository:
    """`small` and `large` files by path; large ones are on the other host."""

    def __init__(self, small=None, large=None, commit=COMMIT, gated=False, sizes=True):
        self.small, self.large, self.commit = dict(small or {}), dict(large or {}), commit
        self.gated, self.sizes = gated, sizes
        self.extra_siblings = []

    def content(self, path):
        return self.large.get(path, self.small.get(path))

    def etag(self, path):
        return sha256(self.large[path]) if path in self.large else git_hash(self.small[path])

    def siblings(self, sizes):
        listed = []
        for path in sorted({**self.small, **self.large}):
            entry = {"rfilename": path}
            if sizes:
                data = self.content(path)
                entry |= {"size": len(data), "blobId": git_hash(data)}
                if path in self.large:
                    entry["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 130}
            listed.append(entry)
        return listed + self.extra_siblings

    def tree(self):
        listed = []
        for path in sorted({**self.small, **self.large}):
            data = self.content(path)
            entry = {"type": "file", "path": path, "size": len(data), "oid": git_hash(data)}
            if path in self.large:
                entry["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 130}
            listed.append(entry)
        return listed


# Faults. Each is used for one answer with the content of its file.
def status(code, **headers):
    return {"status": code, "headers": {k.replace("_", "-"): str(v) for k, v in headers.items()}}


def cut(after):
    """The connection ends after `after` bytes of the answer."""
    return {"cut": after}


def hold(event, after=0):
    """The answer stops after `after` bytes until the event is set."""
    return {"hold": event, "cut_hold": after}


def other(content):
    """Another content of the same size."""
    return {"content": content}


NO_RANGES = {"no_ranges": True}


class Answering(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = WAIT_S

    def log_message(self, *_):
        pass

    def reply(self, code, body=b"", **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def note(self, where):
        with self.server.hub.lock:
            self.server.hub.requests.append((where, self.command, self.path, dict(self.headers)))

    def range_of(self, data, etag):
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not match or self.headers.get("If-Range", etag) != etag:
            return None
        return int(match[1]), min(int(match[2] or len(data)), len(data) - 1)

    def send_content(self, path, data, etag):
        """The content of a file, with the next fault of its script."""
        hub = self.server.hub
        with hub.lock:
            fault = hub.faults[path].popleft() if hub.faults[path] else {}
            fault = hub.always.get(path, fault)
        if "status" in fault:
            return self.reply(fault["status"], **fault["headers"])
        data = fault.get("content", data)
        part = None if fault.get("no_ranges") else self.range_of(data, etag)
        if part and part[0] >= len(data):
            return self.reply(416, Content_Range=f"bytes */{len(data)}")
        self.send_response(206 if part else 200)
        if part:
            self.send_header("Content-Range", f"bytes {part[0]}-{part[1]}/{len(data)}")
        body = data[part[0] : part[1] + 1] if part else data
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", etag)
        self.end_headers()
        if self.command == "HEAD":
            return None
        try:
            self.send_body(path, body, fault)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        return None

    def send_body(self, path, body, fault):
        hub = self.server.hub
        if "cut" in fault:
            body = body[: fault["cut"]]
            self.close_connection = True
        if "hold" in fault:
            self.wfile.write(body[: fault["cut_hold"]])
            self.wfile.flush()
            with hub.lock:
                hub.held += 1
            fault["hold"].wait(WAIT_S)
            body = body[fault["cut_hold"] :]
        if barrier := hub.barriers.get(path):
            barrier.wait(WAIT_S)
        self.wfile.write(body)
        with hub.lock:
            hub.sent[path] += len(body) + fault.get("cut_hold", 0)


class HubHandler(Answering):
    def do_GET(self):
        self.note("hub")
        if match := re.match(r"/api/models/(.+?)/(revision|tree)/([^?]+)", self.path):
            return self.listing(match[1], match[2], urllib.parse.unquote(match[3]))
        if match := re.match(r"/api/resolve-cache/models/([^/]+/[^/]+)/([0-9a-f]{40})/([^?]+)", self.path):
            return self.small(match[1], urllib.parse.unquote(match[3]))
        if match := re.match(r"/([^/]+/[^/]+)/resolve/([^/]+)/([^?]+)", self.path):
            return self.resolve(match[1], urllib.parse.unquote(match[3]))
        return self.reply(404)

    do_HEAD = do_GET

    def allowed(self, repository):
        hub = self.server.hub
        token = self.headers.get("Authorization", "")
        if hub.refused_token and token == f"Bearer {hub.refused_token}":
            self.reply(401, X_Error_Code="InvalidToken")
        elif repository is None:
            self.reply(404 if token else 401, X_Error_Code="RepoNotFound")
        elif repository.gated and token != f"Bearer {hub.token}":
            self.reply(403 if token else 401, X_Error_Code="GatedRepo", X_Error_Message="Access is restricted")
        else:
            return True
        return False

    def listing(self, name, what, revision):
        hub = self.server.hub
        with hub.lock:
            fault = hub.listing_faults.popleft() if hub.listing_faults else None
        if fault:
            return self.reply(fault["status"], **fault["headers"])
        repository = hub.repositories.get(name)
        if not self.allowed(repository):
            return None
        if revision not in ("main", "v1.0", "refs/pr/1", repository.commit):
            return self.reply(404, X_Error_Code="RevisionNotFound")
        if what == "tree":
            return self.reply(200, json.dumps(repository.tree()).encode(), Content_Type="application/json")
        sizes = repository.sizes and "blobs=true" in self.path
        answer = {"id": name, "sha": repository.commit, "siblings": repository.siblings(sizes)}
        return self.reply(200, json.dumps(answer).encode(), Content_Type="application/json")

    def resolve(self, name, path):
        hub = self.server.hub
        repository = hub.repositories.get(name)
        if not self.allowed(repository):
            return None
        if repository.content(path) is None:
            return self.reply(404, X_Error_Code="EntryNotFound")
        headers = {"X_Repo_Commit": repository.commit}
        if path in repository.small:
            location = f"/api/resolve-cache/models/{name}/{repository.commit}/{urllib.parse.quote(path)}"
            return self.reply(307, Location=location, **headers)
        headers |= {
            "X_Linked_Etag": f'"{repository.etag(path)}"',
            "X_Linked_Size": str(len(repository.content(path))),
        }
        return self.reply(302, Location=f"{hub.other_url}/{name}/{urllib.parse.quote(path)}?signature=s", **headers)

    def small(self, name, path):
        repository = self.server.hub.repositories[name]
        if self.command == "HEAD":
            data, etag = repository.content(path), f'"{repository.etag(path)}"'
            return self.reply(200, data, ETag=etag, X_Repo_Commit=repository.commit)
        return self.send_content(path, repository.content(path), f'"{repository.etag(path)}"')


class OtherHandler(Answering):
    def do_GET(self):
        self.note("other")
        name = urllib.parse.unquote(self.path.split("?")[0].lstrip("/"))
        hub = self.server.hub
        if name in hub.files:
            return self.send_content(name, hub.files[name], f'"{sha256(hub.files[name])[:16]}"')
        repository = hub.repositories.get("/".join(name.split("/")[:2]))
        path = "/".join(name.split("/")[2:])
        if repository is None or path not in repository.large:
            return self.reply(404)
        return self.send_content(path, repository.large[path], f'"{sha256(repository.large[path])[:16]}"')

    do_HEAD = do_GET


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Clients may end at any time."""


class FakeHub:
    """`faults[path]` is a queue, one for each answer with that file's content; `always[path]` holds for all.
    `requests` has (where, method, path, headers) of every request, `sent[path]` the bytes of a file that were sent."""

    def __init__(self, repositories=None, tls=None):
        self.repositories = dict(repositories or {})
        self.files = {}  # of the other host, by path
        self.lock = threading.Lock()
        self.requests, self.faults, self.always = [], collections.defaultdict(collections.deque), {}
        self.listing_faults, self.barriers = collections.deque(), {}
        self.sent, self.held = collections.Counter(), 0
        self.token, self.refused_token = "hf_right", None
        self.servers = []
        scheme = "https" if tls else "http"
        for handler in (HubHandler, OtherHandler):
            server = QuietServer(("127.0.0.1", 0), handler)
            server.hub = self
            if tls:
                server.socket = tls.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            self.servers.append(server)
        self.url, self.other_url = (f"{scheme}://127.0.0.1:{s.server_address[1]}" for s in self.servers)

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def of(self, where, method=None):
        """The requests at one of the servers."""
        with self.lock:
            return [r for r in self.requests if r[0] == where and method in (None, r[1])]

    def forget(self):
        with self.lock:
            self.requests.clear()
            self.sent.clear()
