"""Who is let in, and who is refused before anything happens."""

import contextlib
import http.client
import http.server
import os
import re
import socket
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

import consoles
import daemons
import plugin_folders
from anyplug.frontends.console.console_routes import table
from browsers import chromium
from command_line import ok
from consoles import Console, console, signed_in, with_token

TRUST = [
    ("POST", "/plugins/hello/approve", {"digest": ""}),
    ("POST", "/plugins/hello/deny", {}),
    ("POST", "/plugins/hello/revoke", {}),
    ("POST", "/plugins/hello/enable", {}),
    ("POST", "/plugins/hello/disable", {}),
    ("POST", "/plugins/hello/update", {}),
    ("PUT", "/plugins/hello/grants", {"granted": []}),
    ("PUT", "/plugins/hello/config", {}),
    ("DELETE", "/plugins/hello", None),
    ("POST", "/installs", {"source": "/tmp/x"}),
]


FOR_TOKENS = {
    "callTool", "previewCall", "listCalls", "cancelCall", "runChain", "listJobs", "cancelJob", "listCommands",
    "runCommand", "listPlugins", "showPlugin", "listPolicies", "tryEvent", "listRecords", "showRecord", "showStats",
    "showStatus", "listTools", "describeTool", "reloadPlugin", "reload", "downloadFile", "showFleet", "showMetrics",
}  # fmt: skip


def raw(page: Console, method: str, path: str, headers: dict[str, str], body: bytes = b"{}") -> tuple[int, bytes]:
    """Make a request with exactly these headers."""
    connection = http.client.HTTPConnection(page.address, timeout=consoles.PATIENCE_S)
    try:
        connection.request(method, f"/api/v1{path}", None if method == "GET" else body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


WORKER = b"""
self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => event.waitUntil(clients.claim()));
self.addEventListener('fetch', (event) => event.respondWith(
    new Response('answered by the worker', {headers: {'content-type': 'text/html'}})));
"""
PLANT = b"""<script>navigator.serviceWorker.addEventListener('controllerchange', () => document.title = 'planted');
navigator.serviceWorker.register('/worker.js')</script>"""


class Planter(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_worker = self.path == "/worker.js"
        self.send_response(200)
        self.send_header("content-type", "text/javascript" if is_worker else "text/html")
        self.end_headers()
        self.wfile.write(WORKER if is_worker else PLANT)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def planting() -> Iterator[int]:
    """Serve a page that leaves a service worker at its origin; give the port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Planter) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.claim("console-own-page")
def test_no_credentials_of_others_let_anybody_in(root):
    with console() as page:
        cookie, key = page.headers["cookie"], {"x-anyplug-page": page.headers["x-anyplug-page"]}
        own = {"sec-fetch-site": "same-origin", "content-type": "application/json", **key}
        path, port = "/reload", page.address.rpartition(":")[2]
        assert raw(page, "POST", path, {"cookie": cookie, **own})[0] == 200
        wrong = [
            ({**own}, 401),
            ({"cookie": cookie[:-1] + "x", **own}, 401),
            ({"cookie": f"{cookie}; {cookie}", **own}, 401),
            ({"authorization": "Bearer wrong-token-wrong-token"}, 401),
            ({"authorization": "Bearer wrong-token-wrong-token", "cookie": cookie, **own}, 401),
            ({"cookie": cookie, "content-type": "application/json"}, 403),  # a browser says where it comes from
            ({"cookie": cookie, **own, "sec-fetch-site": "same-site"}, 403),  # another port of this machine
            ({"cookie": cookie, **own, "sec-fetch-site": "cross-site"}, 403),
            ({"cookie": cookie, **own, "origin": "http://127.0.0.1:1"}, 403),
            ({"cookie": cookie, **own, "origin": "null"}, 403),
            ({"cookie": cookie, **own, "origin": f"http://localhost:{port}"}, 403),
            ({"cookie": cookie, **own, "origin": daemons.status()["url"]}, 403),
            ({"cookie": cookie, **own, "service-worker": "script"}, 403),
            ({"cookie": cookie, **own, "host": "evil.example:80"}, 421),
            ({"cookie": cookie, **own, "content-type": "text/plain"}, 415),
            ({"cookie": cookie, **own, "content-type": "application/x-www-form-urlencoded"}, 415),
        ]
        for headers, status in wrong:
            assert raw(page, "POST", path, headers)[0] == status, headers
        for site in ("same-site", "cross-site"):
            assert raw(page, "GET", "/plugins", {"cookie": cookie, "sec-fetch-site": site})[0] == 403
        origin = {"cookie": cookie, "content-type": "application/json", "origin": f"http://{page.address}", **key}
        assert raw(page, "POST", path, origin)[0] == 200
        assert raw(page, "GET", "/plugins", {**origin, "origin": f"http://localhost:{port}"})[0] in {401, 403}
        named = Console(daemons.status()["url"].removeprefix("http://"), page.headers)
        assert named.ask("POST", path, {}).status == 401, "the same server, but not the origin of the session"


@pytest.mark.claim("console-own-page")
def test_a_link_leads_to_an_origin_that_is_new_with_each_daemon(root):
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port = chosen.getsockname()[1]
    seen = []
    for _ in range(2):
        with daemons.resident("--http", f"127.0.0.1:{port}"):
            status, link = daemons.status(), consoles.link()
            assert status["url"] == f"http://127.0.0.1:{port}"
            assert link.partition("/?")[0] == status["console"]
            path = link.removeprefix(status["console"])
            said = Console(f"127.0.0.1:{port}", {}).ask("GET", f"/{path}")
            assert (said.status, said.headers["location"]) == (303, "/?login=elsewhere")
            seen += [status["url"], status["console"]]
            for address in seen[-2:]:
                worker = {"service-worker": "script", "sec-fetch-dest": "serviceworker"}
                script = Console(address.removeprefix("http://"), worker).ask("GET", "//")
                assert (script.status, "service-worker-allowed" in script.headers) == (403, False)
    assert len({*seen}) == 3
    with daemons.resident():
        opened = consoles.link().partition("/?")[0]
        assert opened not in seen
        assert daemons.status()["console"] == opened


@pytest.mark.claim("console-own-page")
def test_what_a_server_left_in_the_browser_at_the_named_address_does_not_see_the_page(root):
    """A server leaves a service worker while no daemon runs; later the daemon has its address."""
    with chromium() as browser:
        with planting() as port:
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{port}/")
            expect(page).to_have_title("planted")
        with daemons.resident("--http", f"127.0.0.1:{port}"):
            page.goto(f"http://127.0.0.1:{port}/")
            expect(page.locator("body")).to_have_text("answered by the worker")
            page.goto(consoles.link())
            expect(page.locator(".standing")).to_contain_text("live")


@pytest.mark.claim("console-own-page")
def test_a_cookie_that_another_port_saw_decides_and_shows_nothing_of_a_persons(root):
    ok("install", plugin_folders.cyclop(root, "hello"), "--yes")
    ok("revoke", "hello")
    with console() as page:
        key = page.headers["x-anyplug-page"]
        for wrong in ("", key[:-1], signed_in().headers["x-anyplug-page"]):
            thief = Console(page.address, {**page.headers, "x-anyplug-page": wrong})
            for one in table().all:
                if one.is_for_page:
                    path = re.sub(r"\{\w+\}", "hello", one.path)
                    assert thief.ask(one.method, path, None if one.method == "GET" else {}).status == 401, one.name
        assert page.get("/plugins/hello")["state"] == "new"
        free = {one.name for one in table().all if one.is_for_people and not one.is_for_page}
        assert free == {"followEvents", "followConversation", "followLog"}, "what browsers ask for by themselves"


@pytest.mark.claim("console-own-page")
def test_sessions_of_two_projects_in_one_browser_are_told_apart(tmp_path):
    with console() as page:
        other = signed_in(cwd=tmp_path)
        both = {"cookie": f"{page.headers['cookie']}; {other.headers['cookie']}", "sec-fetch-site": "same-origin"}
        here, there = (
            Console(page.address, {**both, "x-anyplug-page": one.headers["x-anyplug-page"]}) for one in (page, other)
        )
        assert (here.get("/status")["project"], there.get("/status")["project"]) == (os.getcwd(), str(tmp_path))
        for one in (page, other):
            project, _, secret = one.headers["x-anyplug-page"].partition(".")
            named = Console(page.address, both).get(f"/status?page={project}")
            assert named["project"] == one.get("/status")["project"], "as browsers ask for streams and downloads"
            mixed = ({page: there, other: here}[one].headers["x-anyplug-page"].partition(".")[0], secret)
            said = Console(page.address, {**both, "x-anyplug-page": ".".join(mixed)}).ask("POST", "/logout", {})
            assert said.status == 401, "the key of the other project's page"
        assert Console(page.address, both).ask("GET", "/status").status == 401, "which one is not said"
        assert here.ask("POST", "/logout", {}).status == 204
        assert here.ask("GET", "/status").status == 401
        assert there.get("/status")["project"] == str(tmp_path)


@pytest.mark.claim("tools-call")
def test_the_job_of_another_projects_plugin_is_not_shown(tmp_path):
    for folder in (os.getcwd(), str(tmp_path / "other")):
        plugin_folders.stavrobot(f"{folder}/.anyplug/plugins", "news", parameters={}, tool={"async": True})
        ok("approve", "news", "--yes", "--always", cwd=folder)
    ok("call", "news.act", cwd=tmp_path / "other")
    with console() as page:
        (job,) = signed_in(cwd=tmp_path / "other").get("/jobs")["items"]
        for one in (page, with_token()):
            assert one.get("/jobs")["items"] == []
            assert one.ask("DELETE", f"/jobs/{job['id']}", {}).status == 404


@pytest.mark.claim("first-approval-by-person")
def test_a_token_never_decides_about_trust(root):
    ok("install", plugin_folders.cyclop(root, "hello"), "--yes")
    ok("revoke", "hello")
    with console() as page:
        program = with_token()
        assert program.get("/status")["is_console"] is False
        assert page.get("/status")["is_console"] is True
        for method, path, body in TRUST:
            said = program.ask(method, path, body)
            assert (said.status, said.code) == (403, "denied"), path
        assert page.get("/plugins/hello")["state"] == "new"
        assert program.post("/tools/hello/call")["error"]["code"] == "not_approved"


@pytest.mark.claim("first-approval-by-person")
def test_what_a_token_may_do_is_listed_here_and_nothing_else_is_for_tokens(root):
    assert {one.name for one in table().all if one.for_tokens} == FOR_TOKENS
    with console():
        program = with_token()
        for one in table().all:
            if one.is_for_people:
                said = program.ask(one.method, re.sub(r"\{\w+\}", "x", one.path), None if one.method == "GET" else {})
                assert (said.status, said.code) == (403, "denied"), one.name


@pytest.mark.parametrize("kind", ["queue", "link", "folder"])
def test_a_candidate_that_is_no_ordinary_file_holds_nobody_up(kind, root, tmp_path):
    path = tmp_path / "candidate.rego"
    os.mkfifo(path) if kind == "queue" else path.symlink_to("/dev/zero") if kind == "link" else path.mkdir()
    with console() as page:
        said = page.ask("POST", "/policies/replay", {"candidate": {"path": str(path)}})
        assert said.status in {200, 400}
        assert page.get("/status")["up"]


def test_a_link_opens_one_session_and_is_never_shown_again():
    with console() as page:
        link = consoles.link().removeprefix("http://")
        path = link.partition("/")[2]
        first = Console(page.address, {}).ask("GET", f"//{path}")
        again = Console(page.address, {}).ask("GET", f"//{path}")
        assert (first.status, first.headers["location"]) == (303, first.headers["location"])
        assert re.fullmatch(r"/#page=[0-9a-f]{16}\.[\w-]{43}", first.headers["location"])
        assert "HttpOnly" in first.headers["set-cookie"]
        assert "SameSite=Strict" in first.headers["set-cookie"]
        assert again.headers["location"] == "/?login=expired"
        assert "set-cookie" not in again.headers
        said = page.ask("POST", "/logout", {})
        assert said.status == 204
        assert page.ask("GET", "/status").status == 401


def test_every_answer_says_that_nothing_foreign_may_run():
    with console() as page:
        for path in ("//", "/status", "/plugins/none", "//metrics", "//anything/else"):
            headers = page.ask("GET", path).headers
            assert "'unsafe" not in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"


def test_the_pages_files_are_cached_and_its_views_are_the_page():
    with console() as page:
        visitor = Console(page.address, {})
        whole = visitor.ask("GET", "//")
        assert (whole.status, whole.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert visitor.ask("GET", "//plugins/hello").body == whole.body
        unchanged = visitor.ask("GET", "//", headers={"if-none-match": whole.headers["etag"]})
        assert (unchanged.status, unchanged.body) == (304, b"")
        for path in ("//missing.js", "//api/v2/status", "//..%2f..%2fetc/passwd.txt", "//mcpx"):
            assert visitor.ask("GET", path).status == 404, path
        assert visitor.ask("POST", "//", {}).status == 405


def test_requests_are_read_strictly():
    with console() as page:
        wrong = [
            ("GET", "/plugins?limit=0", None, 400),
            ("GET", "/plugins?limit=9999999999999999999999", None, 400),
            ("GET", "/plugins?limit=1&limit=2", None, 400),
            ("GET", "/plugins?q=%ff", None, 400),
            ("GET", "/records?since=soon", None, 400),
            ("GET", "/nothing", None, 404),
            ("DELETE", "/status", None, 405),
            ("POST", "/tools/x/call", b"{", 400),
            ("POST", "/tools/x/call", b"[" * 100_000, 400),
            ("POST", "/tools/x/call", b'{"arguments": 1}', 400),
            ("POST", "/tools/x/call", b'{"unknown": 1}', 400),
            ("POST", "/tools/x/call", b'{"id": "with space"}', 400),
            ("POST", "/policies/replay", rb'{"candidate": {"path": "\u0000.rego"}}', 400),
            ("POST", "/installs", rb'{"source": "/tmp/\u0000"}', 400),
            ("POST", "/installs", rb'{"source": "/tmp", "subdir": "\u0000"}', 400),
            ("DELETE", "/jobs/none", b"{}", 404),
            ("POST", "/questions/none/answer", b'{"word": "maybe"}', 400),
            ("POST", "/questions/none/answer", b'{"word": "no"}', 404),
        ]
        for method, path, body, status in wrong:
            said = page.ask(method, path, body, {"content-type": "application/json"})
            assert said.status == status, (path, said)
            assert set(said.json["error"]) >= {"code", "message", "hint"}
        large = page.ask("POST", "/tools/x/call", b" " * (5 << 20), {"content-type": "application/json"})
        assert large.status == 413


HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[31m\"'`${7*7}\ud83d"


def test_what_plugins_wrote_comes_as_data(root):
    text = HOSTILE.encode("utf-8", "replace").decode()
    tools = [{"name": "evil", "description": text, "input_schema": {"type": "object", "title": text}}]
    source = plugin_folders.cyclop(
        root, "evil", "#!/bin/sh\ncat > /dev/null\nprintf '%s' '{\"result\": \"<b>\"}'", tools=tools, description=text
    )
    with console() as page:
        ok("install", source, "--yes")
        page.post("/reload")
        for path in ("/plugins", "/plugins/evil", "/tools", "/tools/evil", "/plugins/evil/changes"):
            said = page.ask("GET", path)
            assert said.headers["content-type"] == "application/json"
            assert "sandbox" in said.headers["content-security-policy"]
            assert said.json
        assert page.post("/tools/evil/call")["text"] == "<b>"


def test_a_path_that_is_none_takes_no_page_away(root):
    source = plugin_folders.cyclop(root, "nul", permissions=["filesystem:read:/tmp/\0x", "filesystem:write:\0"])
    with console() as page:
        ok("install", source, "--yes")
        page.post("/reload")
        assert [plugin["name"] for plugin in page.get("/plugins")["items"]] == ["nul"]
        assert page.get("/plugins/nul")["state"] == "approved"
        said = page.ask("PUT", "/plugins/nul/grants", {"granted": ["filesystem:read:/tmp/\0x"]})
        assert (said.status, said.code) == (400, "usage")
        assert page.post("/tools/nul/dry-run")["tool"] == "nul"


def test_two_people_have_sessions_of_their_own():
    with console() as page:
        other = signed_in()
        page.ask("POST", "/logout", {})
        assert other.ask("GET", "/status").status == 200
