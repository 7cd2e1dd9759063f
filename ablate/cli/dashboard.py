"""`ablate dashboard`: the store in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from ablate.cli.options import DEFAULT_STORE, PluginOption, StoreOption


def dashboard(
    stores: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STORE",
            help="Stores to look at together: files, or SQLAlchemy URLs.",
            show_default="the one of --store",
        ),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    port: Annotated[
        int | None,
        typer.Option("--port", min=1, max=65535, help="Where to listen.", show_default="8501, or the next free one"),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 lets other machines in.")] = (
        "127.0.0.1"
    ),
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TEXT",
            help="The token that the dashboard asks each visitor for.",
            show_default="none here; generated and printed with --host",
        ),
    ] = None,
    plugin: PluginOption = None,
) -> None:
    """Look at studies in a browser: answers, curves, trials, comparisons; also while a study runs.

    With --host it asks for a token, and only reads the store.
    """
    from ablate.serving import serve

    serve(stores or [store], port, host, tuple(plugin or ()), token)
