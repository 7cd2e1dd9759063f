"""Starts the dashboard: Streamlit in a process that takes the place of this one."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from ablate.errors import AblateError, NotFoundError, PluginError
from ablate.extras import require
from ablate.locations import check_home
from ablate.processes import child_environment, python_command
from ablate.render.terminal.console import make_console, say
from ablate.store import open_store

FIRST_PORT, PORTS = 8501, 100
OPTIONS = "ABLATE_DASHBOARD"
"""The environment variable that hands the stores and the plugins over, as JSON; a command line shows passwords."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
FORWARDED = ("X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Forwarded")
"""Headers by which a proxy says that it stands before the dashboard."""


def host_name(host: str) -> str:
    """The name in a header `Host`, without its port: `localhost:8501`, `[::1]:8501`."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def dashboard_folder() -> Path:
    """The folder of the app: inside an installed package, else beside it in a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / "served" / "dashboard"
    return inside if inside.is_dir() else package.parent / "dashboard"


def serve(
    stores: Sequence[str], port: int | None, host: str, plugins: tuple[str, ...], token: str | None = None
) -> None:
    """Become the process that serves the dashboard; returns only by raising.

    Args:
        stores: The stores to read, files or URLs; they need not be there yet.
        port: Where to listen; None: the first free port from 8501 on.
        host: Address to listen on.
        plugins: Files with kinds of the user's own.
        token: The token that the dashboard asks each visitor for. None: no token on a loopback address, else a random
            one.

    Raises:
        AblateError: The extra is not installed, there is no home folder, the store is not one, a plugin is missing, or
            the address is taken.
    """
    require("dashboard", "the dashboard", where="ablate dashboard")
    check_home("Streamlit", "ablate dashboard")
    for store in stores:
        _check_store(store)
    for plugin in plugins:
        if not Path(plugin).is_file():
            raise PluginError("there is no such file", where=plugin, remedy="Give --plugin the path of a Python file.")
    port = _free_port(host) if port is None else _check_port(host, port)
    is_open = host not in LOOPBACK
    if is_open and not token:
        token = secrets.token_urlsafe(16)
    if token:
        say(make_console(), f"The dashboard asks each visitor for this token: {token}")
    if is_open:
        say(make_console(), f"From {host} the store can only be read. The token is sent without encryption.")
    arguments = [
        *python_command("-m", "streamlit", "run", str(dashboard_folder() / "server.py")),
        *("--server.address", host, "--server.port", str(port)),
        *("--browser.serverAddress", "localhost" if host in (*LOOPBACK, "0.0.0.0", "::") else host),
        *("--browser.gatherUsageStats", "false", "--server.showEmailPrompt", "false"),
        # A folder's own .streamlit/config.toml may not open it to other pages or programs.
        *("--server.enableCORS", "true", "--server.enableXsrfProtection", "true", "--server.enableAgentApi", "false"),
        *("--server.enableStaticServing", "false"),
        *("--runner.magicEnabled", "false"),  # it would show the docstrings of constants in the page
    ]
    sys.stdout.flush()
    chosen = {
        "stores": list(dict.fromkeys(stores)),
        "plugins": [str(Path(plugin).absolute()) for plugin in plugins],
        "token": token or "",
        "read_only": is_open,
        "may_run": not is_open,
    }
    os.execve(sys.executable, arguments, child_environment({OPTIONS: json.dumps(chosen)}))


def _check_store(store: str) -> None:
    """Refuse what cannot be a store; one that is not there yet may come."""
    try:
        open_store(store, create=False).close()
    except NotFoundError:
        return


def _free_port(host: str) -> int:
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        try:
            return _check_port(host, port)
        except _TakenError:
            continue
    raise AblateError(
        "no port is free",
        where=f"{host}:{FIRST_PORT}-{FIRST_PORT + PORTS - 1}",
        remedy="Name another one with --port.",
    )


class _TakenError(AblateError):
    """Something else listens there."""


def _check_port(host: str, port: int) -> int:
    """The port, if it can be listened on."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise AblateError(
            "there is no such address", where=f"--host {host}", remedy="Leave it out, or give 0.0.0.0."
        ) from None
    with socket.socket(family, kind, protocol) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(address)
        except PermissionError:
            raise AblateError(
                "you may not listen on this port", where=f"{host}:{port}", remedy="Give one above 1023 with --port."
            ) from None
        except OSError as error:
            raise _TakenError(
                f"the dashboard cannot listen here ({error.strerror})",
                where=f"{host}:{port}",
                remedy="Give another --port, or close what listens there.",
            ) from None
    return port
