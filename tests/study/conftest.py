"""Real data where they are to be had, and a server on this machine that misbehaves."""

import hashlib
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data():
    """The folder with the real data; skips if there is none."""
    given = os.environ.get("BRAINWEAVE_DATA")
    root = Path(__file__).resolve().parents[2]
    folder = Path(given) if given else root.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real data: set BRAINWEAVE_DATA to their folder")
    return folder


@pytest.fixture(scope="session")
def mini_haxby(real_data):
    folder = real_data / "pymvpa_haxby_sub001_mini" / "mvpa2" / "data"
    if not folder.is_dir():
        pytest.skip(f"no mini Haxby data in {real_data}")
    return folder


class LocalServer:
    """Serves bytes by path, with ranges; breaks off or lies when told to."""

    def __init__(self):
        self.files = {}
        self.graphql = None  # answer to POST
        self.break_after = {}  # path -> list of byte counts, one per GET
        self.ranges = True
        self.log = []
        self.url = ""

    def handler(server):
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def do_HEAD(self):
                self.send(body=False)

            def do_GET(self):
                self.send(body=True)

            def do_POST(self):
                length = int(self.headers["Content-Length"])
                query = json.loads(self.rfile.read(length))["query"]
                server.log.append(("POST", query, None))
                answer = json.dumps(server.graphql(query)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def send(self, body):
                path = self.path.lstrip("/")
                asked = self.headers.get("Range")
                server.log.append((self.command, path, asked))
                content = server.files.get(path)
                if content is None:
                    self.send_error(404)
                    return
                if isinstance(content, int):
                    self.send_error(content)
                    return
                start = 0
                if asked and server.ranges:
                    start = int(asked.removeprefix("bytes=").split("-")[0])
                    if start >= len(content):
                        self.send_error(416)
                        return
                self.send_response(206 if start else 200)
                if start:
                    last = len(content) - 1
                    self.send_header(
                        "Content-Range", f"bytes {start}-{last}/{len(content)}"
                    )
                self.send_header("Content-Length", str(len(content) - start))
                self.send_header("ETag", f'"{hashlib.md5(content).hexdigest()}"')
                self.end_headers()
                if not body:
                    return
                rest = content[start:]
                cuts = server.break_after.get(path)
                if cuts:
                    rest = rest[: cuts.pop(0)]
                    self.close_connection = True
                self.wfile.write(rest)

        return Handler

    def gets(self, path):
        return [entry for entry in self.log if entry[:2] == ("GET", path)]


@pytest.fixture
def server():
    local = LocalServer()
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), local.handler())
    httpd.daemon_threads = True
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    local.url = f"http://127.0.0.1:{httpd.server_address[1]}/"
    yield local
    httpd.shutdown()
    httpd.server_close()
    thread.join()
