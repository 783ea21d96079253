"""One-time links, and the cookies that they become."""

from anyplug.frontends.console import browser_sessions
from anyplug.frontends.console.browser_sessions import BrowserSessions
from anyplug.frontends.http.listener import listen_afresh

LISTENER = listen_afresh()
LISTENER.close()
HERE = LISTENER.page_url.removeprefix("http://").encode()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def made() -> tuple[BrowserSessions, Clock]:
    clock = Clock()
    return BrowserSessions(LISTENER, clock=clock), clock


def cookie(header: str) -> dict[bytes, bytes]:
    return {b"cookie": header.partition(";")[0].encode(), b"host": HERE}


def test_a_link_works_once():
    sessions, _ = made()
    key = sessions.link("here")
    header = sessions.open(key, HERE).cookie
    assert header.endswith("Path=/; HttpOnly; SameSite=Strict")
    assert sessions.of(cookie(header)).place == "here"
    assert sessions.open(key, HERE) is None
    assert sessions.open("", HERE) is None


def test_a_link_is_too_old_after_a_minute():
    sessions, clock = made()
    key = sessions.link("here")
    clock.now += browser_sessions.LINK_S
    assert sessions.open(key, HERE) is None


def test_a_session_ends_when_nobody_uses_it_or_signs_out():
    sessions, clock = made()
    first, second = sessions.open(sessions.link("a"), HERE).cookie, sessions.open(sessions.link("b"), HERE).cookie
    clock.now += browser_sessions.IDLE_S - 1
    assert sessions.of(cookie(first)) is not None
    clock.now += 2
    assert sessions.of(cookie(second)) is None, "nobody used it"
    session = sessions.of(cookie(first))
    assert "Max-Age=0" in sessions.close(session)
    assert sessions.of(cookie(first)) is None


def test_two_cookies_of_one_name_count_as_none():
    sessions, _ = made()
    pair = sessions.open(sessions.link("a"), HERE).cookie.partition(";")[0]
    assert sessions.of({b"cookie": f"other=1; {pair}".encode(), b"host": HERE}) is not None
    assert sessions.of({b"cookie": f"{pair}; {pair}".encode()}) is None
    assert sessions.of({}) is None
    assert sessions.of({b"cookie": b"\xff=\xfe"}) is None


def test_links_and_sessions_are_limited():
    sessions, _ = made()
    first = sessions.link("a")
    for _ in range(browser_sessions.MOST_LINKS):
        sessions.link("b")
    assert sessions.open(first, HERE) is None
    kept = [sessions.open(sessions.link("c"), HERE).cookie for _ in range(browser_sessions.MOST_SESSIONS + 1)]
    assert sum(sessions.of(cookie(header)) is not None for header in kept) == browser_sessions.MOST_SESSIONS


def test_a_session_belongs_to_the_origin_at_which_its_link_was_opened():
    listener = listen_afresh(names=["box.example"])
    listener.close()
    sessions = BrowserSessions(listener)
    here = str(listener.address).encode()
    key = sessions.link("here")
    for other in (f"localhost:{listener.port}", f"127.0.0.1:{listener.port}", "evil.example", ""):
        assert sessions.open(key, other.encode()) is None, other
    for opened, other in ((here, b"box.example"), (b"box.example", here)):
        given = {b"cookie": sessions.open(key, opened).cookie.partition(";")[0].encode()}
        assert sessions.of({**given, b"host": opened}).origin == b"http://" + opened
        assert sessions.of({**given, b"host": other}) is None
        key = sessions.link("here")
