"""The dashboard as a web application: `app.py` served by Streamlit, to its own pages alone, which know its address."""

from __future__ import annotations

import sys
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.starlette import App

from ablate.processes import keep_printing
from ablate.serving import FORWARDED, LOOPBACK, host_name

sys.path.append(str(Path(__file__).parents[1]))  # where the package `dashboard` is
from dashboard.shared.machine import watch_machine
from dashboard.shared.store import options

_ADDRESS = b'<head><script>window.__streamlit = {BACKEND_BASE_URL: new URL(".", window.location.href).href}</script>'
_FILES = ("/_stcore/", "/media/", "/component/", "/static/", "/app/")


class OwnPages:
    """Answers requests of the dashboard's own pages, and refuses those that another web page sends.

    Streamlit admits pages of all ports of this machine, and of every name that resolves to it, such as one that a web
    site rebinds. On a loopback address `Host` must name this machine, unless a proxy says that it stands before (a page
    cannot say so: the browser writes the headers of a socket). The `Origin` of a page must be the `Host`; programs send
    none.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request or a socket, or refuse it with status 403."""
        if scope["type"] not in ("http", "websocket") or _is_own(Headers(scope=scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})  # before it is accepted: status 403
        else:
            await PlainTextResponse(_REFUSED, status_code=403)(scope, receive, send)


_REFUSED = "This dashboard answers its own pages only. Open it as http://localhost, with its port."


def _is_own(headers: Headers) -> bool:
    """Whether a request comes from a page of this dashboard, or from no web page."""
    origin, host = headers.get("origin"), headers.get("host", "")
    if any(headers.get(name) for name in FORWARDED):  # Streamlit compares the origin with what the proxy may rewrite
        return True
    if options()["may_run"] and host_name(host) not in LOOPBACK:
        return False
    return origin is None or origin in (f"http://{host}", f"https://{host}")


class ServerAddress:
    """Writes the address of the server into the document of each page, which no other page may embed.

    Without it Streamlit's client assumes that the server may be at `/answer/`, asks there first, and two requests of
    each page fail.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; HTML documents are changed, all other responses are passed on."""
        if scope["type"] != "http" or scope["path"].startswith(_FILES) or "." in scope["path"].rpartition("/")[2]:
            await self._app(scope, receive, send)
            return
        plain = [(name, value) for name, value in scope["headers"] if name not in (b"accept-encoding", b"range")]
        start: Message = {}
        body = bytearray()

        async def collect(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            if message["type"] != "http.response.body":
                await send(message)
                return
            body.extend(message.get("body", b""))
            if message.get("more_body"):
                return
            headers = MutableHeaders(raw=list(start["headers"]))
            content = bytes(body)
            if headers.get("content-type", "").startswith("text/html") and content:
                content = content.replace(b"<head>", _ADDRESS, 1)
                headers["content-security-policy"] = "frame-ancestors 'none'"  # no page lays it under its own buttons
                headers["content-length"] = str(len(content))
            await send({**start, "headers": headers.raw})
            await send({"type": "http.response.body", "body": content})

        await self._app({**scope, "headers": plain}, receive, collect)


keep_printing()
watch_machine()
app = App(Path(__file__).with_name("app.py"), middleware=[Middleware(OwnPages), Middleware(ServerAddress)])
