"""What another web page must not do to the dashboard of this machine: open it, read from it, act through a link."""

from __future__ import annotations

import json
import re
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import streamlit as st
from cli_runs import Workplace
from pages import Serve
from streamlit.testing.v1 import AppTest
from written_stores import simple_store

from ablate.serving import OPTIONS
from dashboard.shared.store import store as opened_store
from dashboard.views import PAGES

DASHBOARD = Path(__file__).parents[2] / "dashboard"
SECRET = "a secret of this user"
SOCKET = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": "streamlit",
}  # fmt: skip


CONFIG = """
[server]
enableCORS = false
enableXsrfProtection = false
enableAgentApi = true
enableStaticServing = true
allowedHosts = ["*"]
corsAllowedOrigins = ["https://site.example"]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Workplace:
    """A folder whose settings of Streamlit would let everybody in."""
    place = Workplace(tmp_path_factory.mktemp("foreign"), cache)
    (place.folder / ".streamlit").mkdir()
    (place.folder / ".streamlit" / "config.toml").write_text(CONFIG)
    return place


@pytest.fixture(scope="module")
def port(place: Workplace, serve: Serve) -> int:
    """The port of a dashboard on the loopback address."""
    return urlsplit(serve(place)).port or 0


def ask(port: int, method: str, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], str]:
    """The status, the headers and the text with which the dashboard answers; of a socket no text."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host=True)
        for name, value in {**headers, "Content-Length": "0"}.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        text = "" if answer.status == 101 else answer.read(1_000_000).decode(errors="replace")
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text
    finally:
        connection.close()


OWN = {
    "a page of it": {"Host": "localhost:PORT", "Origin": "http://localhost:PORT"},
    "by its number": {"Host": "127.0.0.1:PORT", "Origin": "http://127.0.0.1:PORT"},
    "by the newer number": {"Host": "[::1]:PORT", "Origin": "http://[::1]:PORT"},
    "a forwarded port": {"Host": "localhost:9000", "Origin": "http://localhost:9000"},
    "a program": {"Host": "127.0.0.1:PORT"},
    "a proxy": {"Host": "lab.example", "Origin": "https://lab.example", "X-Forwarded-For": "10.0.0.7"},
}
FOREIGN = {
    "another site": {"Host": "localhost:PORT", "Origin": "https://site.example"},
    "another port of this machine": {"Host": "localhost:PORT", "Origin": "http://localhost:9999"},
    "another name of this machine": {"Host": "localhost:PORT", "Origin": "http://127.0.0.1:PORT"},
    "a sandboxed frame": {"Host": "localhost:PORT", "Origin": "null"},
    "an empty origin": {"Host": "localhost:PORT", "Origin": ""},
    "a name that begins alike": {"Host": "localhost:PORT", "Origin": "http://localhost:PORT.site.example"},
    "a rebound name": {"Host": "site.example:PORT", "Origin": "http://site.example:PORT"},
    "a rebound name that begins alike": {
        "Host": "localhost.site.example:PORT", "Origin": "http://localhost.site.example:PORT"
    },
    "a rebound name without an origin": {"Host": "site.example:PORT"},
    "no host": {},
}  # fmt: skip


def on(port: int, headers: dict[str, str]) -> dict[str, str]:
    return {name: value.replace("PORT", str(port)) for name, value in headers.items()}


@pytest.mark.parametrize("who", OWN)
def test_own_pages_open_a_socket(port: int, who: str) -> None:
    assert ask(port, "GET", "/_stcore/stream", on(port, OWN[who]) | SOCKET)[0] == 101


@pytest.mark.parametrize("who", FOREIGN)
def test_other_pages_open_no_socket(port: int, who: str) -> None:
    """So they start and stop no study, write no mark, view or space, and read no result: all that goes by a socket."""
    assert ask(port, "GET", "/_stcore/stream", on(port, FOREIGN[who]) | SOCKET)[0] in (400, 403)


@pytest.mark.parametrize("who", FOREIGN)
@pytest.mark.parametrize(("method", "path"), [("PUT", "/_stcore/upload_file/s/f"), ("GET", "/_stcore/host-config")])
def test_other_pages_send_and_read_nothing(port: int, who: str, method: str, path: str) -> None:
    assert ask(port, method, path, on(port, FOREIGN[who]))[0] in (400, 403)


def test_no_page_embeds_it_and_no_program_drives_it_without_its_user(port: int) -> None:
    own = on(port, OWN["a page of it"])
    for path in ("/", "/design?space=x", "/answer?study=s"):
        assert ask(port, "GET", path, own)[1]["content-security-policy"] == "frame-ancestors 'none'"
    for path in ("/_stcore/agent/interact", "/_stcore/agent/mcp"):
        assert ask(port, "POST", path, on(port, OWN["a program"]))[0] >= 400


@pytest.mark.parametrize("folder", ["", "media", "static", "app/static", "component/x", "_stcore/bidi-components/x"])
def test_no_address_reads_a_file(port: int, place: Workplace, folder: str) -> None:
    file = place.folder / "secret.txt"
    file.write_text(SECRET)
    up = "/".join([".."] * 12)
    for path in (f"{up}{file}", f"{file}", f"//{file}", f"{up}{file}".replace("..", "%2e%2e"),
                 f"{up}{file}".replace("/", "%2f"), f"{up}{file}".replace("/", "\\"), "%00", "secret.txt"):  # fmt: skip
        assert SECRET not in ask(port, "GET", f"/{folder}/{path}", on(port, OWN["a program"]))[2]


PAGE = """
import streamlit as st
from dashboard.shared.frame import choose_study, navigation
navigation()
with st.sidebar:
    choose_study()
from dashboard.views.{name} import show
show()
"""


def drafted(draft: str) -> str:
    return urlsafe_b64encode(zlib.compress(draft.encode())).decode()


PARTS = '"task": {}, "model": {"block": {}}, "training": {}, "design": {}, "objective": {}'
HOSTILE = [
    "../../../../etc/passwd",
    "9" * 5_000,
    drafted(f'{{"name": "\\ud800", {PARTS}, "switches": {{}}}}'),
    "-1e999",
    drafted(f'{{"extends": "/etc/passwd", {PARTS}, "switches": {{"a": {{"\\ud800": {{}}}}}}}}'),
    "<script>alert(1)</script>\x1b[2J\u202e",
    drafted('{"a": ' * 5_000),
    "true",
    drafted(" " * 5_000_000),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store, read by a dashboard that may run studies."""
    location = tmp_path_factory.mktemp("linked") / "ablate.db"
    simple_store(str(location))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(OPTIONS, json.dumps({"stores": [str(location)], "may_run": True}))
        st.cache_resource.clear()
        yield location
        opened_store().close()
        st.cache_resource.clear()


@pytest.mark.parametrize("page", [entry.name for entries in PAGES.values() for entry in entries])
def test_a_link_breaks_no_page_and_does_nothing(page: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it says for each control of the dashboard, buttons and fields of text included."""

    def act(*_: object, **__: object) -> None:
        raise AssertionError("a link acts")

    for name in ("running._start", "running.stop", "frame.write_views", "results._write"):
        monkeypatch.setattr(f"dashboard.shared.{name}", act)
    before = {file: file.stat().st_mtime_ns for file in store.parent.iterdir() if file.name == store.name}
    sources = "".join(file.read_text() for file in DASHBOARD.rglob("*.py"))
    controls = {*re.findall(r'key="([\w-]+)"', sources), "space", "why", "studies", "next-0", "start-study"} - {"token"}
    for turn in range(3):
        app = AppTest.from_string(PAGE.format(name=page), default_timeout=90)
        for number, control in enumerate(sorted(controls)):
            app.query_params[control] = HOSTILE[(number + turn) % len(HOSTILE)]
        app.query_params["study"] = ["half", "done", HOSTILE[0]][turn]
        app.run()
        assert not app.exception, app.exception[0].value
    assert {file.name for file in store.parent.iterdir()} <= {store.name, f"{store.name}-wal", f"{store.name}-shm"}
    assert before == {file: file.stat().st_mtime_ns for file in before}
