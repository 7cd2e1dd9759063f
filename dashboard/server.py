"""The dashboard as a web application: `app.py` served by Streamlit, with the address of its server in each page."""

from __future__ import annotations

import sys
from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.starlette import App

from ablate.processes import keep_printing

_ADDRESS = b'<head><script>window.__streamlit = {BACKEND_BASE_URL: new URL(".", window.location.href).href}</script>'
_FILES = ("/_stcore/", "/media/", "/component/", "/static/", "/app/")


class ServerAddress:
    """Writes the address of the server into the document of each page.

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
                headers["content-length"] = str(len(content))
            await send({**start, "headers": headers.raw})
            await send({"type": "http.response.body", "body": content})

        await self._app({**scope, "headers": plain}, receive, collect)


keep_printing()
sys.path.append(str(Path(__file__).parents[1]))  # where the package `dashboard` is
app = App(Path(__file__).with_name("app.py"), middleware=[Middleware(ServerAddress)])
