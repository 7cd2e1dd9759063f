"""`hub:NAME`: a dataset of the Hugging Face Hub, or a local folder in the same layout, read with `datasets`."""

from __future__ import annotations

import difflib
import logging
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ablate.errors import DataError, MissingPackageError, first_cause
from ablate.extras import require
from ablate.locations import real_path, typed_path
from ablate.spec.task import Say
from ablate.tasks.sources import TEST, VALIDATION_NAMES, BadRows, Row, Source, no_column
from ablate.tasks.tables import is_good, plain_value

STREAMED_FROM = 4 << 30
"""Size in bytes from which a dataset is streamed instead of downloaded first."""

REACH_SECONDS = 5.0
"""Timeout in seconds of a first request to the hub. The library itself retries six times, for up to a minute."""

_ADDRESS = re.compile(
    r"(?P<name>[^@#]+?)(?:@(?P<revision>[^@#]+))?"
    r"(?:#(?P<train>[^,#]+)(?:,(?P<validation>[^,#]+)(?:,(?P<test>[^,#]+))?)?)?"
)


class Hub(Source):
    """A dataset of the Hugging Face Hub, or a local folder in the same layout.

    `hub:OWNER/NAME[/CONFIG][@REVISION][#TRAIN[,VALIDATION[,TEST]]]`, or a path that begins with `/`, `.` or `~`.
    Without `#` the splits are `train`, the first of `validation`, `valid`, `val` and `dev` that exists, and `test` if
    the task has a test. The commit that the hub resolves is part of the fingerprint. A dataset is streamed when
    it is large, or when the task reads only its beginning.
    """

    kind: Literal["hub"] = "hub"
    argument_name = "NAME"

    argument: str
    """The name of a dataset, or a path, with revision and splits."""

    def rows(self, columns: Sequence[str], bad_rows: BadRows, say: Say) -> Iterator[Row]:
        """The rows of the training split, then of the validation and test splits."""
        splits = self._splits
        chosen = self._chosen(list(splits))
        unread = [name for name in splits if name not in chosen.values()]
        if unread:
            say(f"Splits left out: {', '.join(unread)}")
        for part, name in chosen.items():
            self._check_columns(columns, splits[name])
            yield from self._read(name, part if len(chosen) > 1 else "", columns, bad_rows)

    def revision(self) -> str:
        """The commit that the hub resolved; empty for a local folder, which is identified by its content."""
        return "" if self._is_local else str(self._builder.hash)

    def missing(self) -> str | None:
        """Whether a local folder or the library is missing; the hub is not queried."""
        try:
            self._require_library()
        except MissingPackageError as error:
            return str(error)
        if not self._is_local:
            return None
        try:
            folder = typed_path(self._parts["name"], DataError)
        except DataError as error:
            return str(error)
        if not folder.exists():
            return f"{self._parts['name']}: there is no such folder"
        if real_path(folder) in real_path(Path.cwd()).parents:  # the library would search everything below it
            return f"{self._parts['name']}: this folder contains the working folder and is not a dataset"
        return None

    def _require_library(self) -> None:
        require("data", "data of the Hugging Face hub", where=f"hub:{self.argument}", packages=("datasets", "pyarrow"))

    @cached_property
    def _parts(self) -> dict[str, Any]:
        match = _ADDRESS.fullmatch(self.argument)
        if match is None:
            raise DataError(
                "this is not the address of a dataset",
                where=f"hub:{self.argument}",
                expected="`hub:OWNER/NAME[/CONFIG][@REVISION][#TRAIN[,VALIDATION[,TEST]]]`",
            )
        return match.groupdict()

    @property
    def _is_local(self) -> bool:
        return self.argument.startswith(("/", ".", "~"))

    @cached_property
    def _builder(self) -> Any:
        self._require_library()
        import datasets

        name, config = self._parts["name"], None
        if missing := self.missing():
            raise DataError(
                missing, where=f"hub:{self.argument}", remedy="Check the path after `hub:`, or name other data."
            )
        if self._is_local:
            name = str(typed_path(name, DataError))
        elif name.count("/") == 2:
            name, _, config = name.rpartition("/")
        logger = logging.getLogger("huggingface_hub")
        before = logger.level
        logger.setLevel(logging.CRITICAL)  # it logs every attempt to reach the hub; we report only the result
        try:
            with nullcontext() if self._is_local or _is_reachable() else _offline():
                return datasets.load_dataset_builder(name, config, revision=self._parts["revision"])
        except Exception as error:  # the library raises many types of exceptions
            raise self._not_found(error) from None
        finally:
            logger.setLevel(before)

    @cached_property
    def _splits(self) -> dict[str, Any]:
        """The rows of each split; each can be iterated over several times."""
        builder = self._builder
        import datasets

        size = max(builder.info.download_size or 0, builder.info.dataset_size or 0)
        try:
            if size >= STREAMED_FROM or self.partial:
                return dict(builder.as_streaming_dataset())
            shown = datasets.is_progress_bar_enabled()
            datasets.disable_progress_bars()
            try:
                builder.download_and_prepare()
            finally:
                if shown:
                    datasets.enable_progress_bars()
            return dict(builder.as_dataset())
        except Exception as error:
            raise self._not_found(error) from None

    def _chosen(self, names: list[str]) -> dict[str, str]:
        """Names of the splits for training (always first), validation and test."""
        chosen = {part: self._parts[part] for part in ("train", "validation", TEST) if self._parts[part]}
        for name in chosen.values():
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                raise DataError(
                    f"there is no split `{name}`",
                    where=f"hub:{self.argument}",
                    expected=f"one of {', '.join(names)}",
                    remedy=f"Did you mean `{near[0]}`?" if near else None,
                )
        if not chosen:
            usual = {"train": ("train", *names), "validation": VALIDATION_NAMES, TEST: (TEST,)}
            first = {part: next((name for name in known if name in names), "") for part, known in usual.items()}
            chosen = {part: name for part, name in first.items() if name}
        return {part: name for part, name in chosen.items() if part != TEST or self.with_test}

    def _check_columns(self, columns: Sequence[str], rows: Any) -> None:
        existing = rows.column_names or list(next(iter(rows), {}))  # a stream may know its columns by its rows alone
        for column in columns:
            if column not in existing:
                raise no_column(f"hub:{self.argument}", column, existing)

    def _read(self, name: str, split: str, columns: Sequence[str], bad_rows: BadRows) -> Iterator[Row]:
        rows = self._splits[name].select_columns(list(columns))
        features = rows.features or {}
        for number, row in enumerate(rows, 1):
            where = f"hub:{self.argument}: row {number} of {name}"
            values = tuple(_plain(row[column], features.get(column)) for column in columns)
            if is_good(values, columns, where, bad_rows):
                yield Row(where, values, split)

    def _not_found(self, error: Exception) -> DataError:
        where = f"hub:{self.argument}"
        cause = first_cause(error, f"{where}, whose copy goes to HF_HOME or ~/.cache/huggingface")
        if isinstance(error, ConnectionError):
            return DataError(
                "the hub does not respond (is this machine offline?) and the dataset is not in the cache of `datasets`",
                where=where,
                remedy="Run once with a connection, or name a local copy: `hub:./FOLDER`.",
            )
        from datasets.exceptions import DatasetGenerationError

        if isinstance(error, DatasetGenerationError):  # it says only that something was raised
            remedy = "Correct its files; `datasets` says above which it could not read."
            return DataError(f"the dataset cannot be read ({_first_line(cause)})", where=where, remedy=remedy)
        remedy = "Check its name, configuration and revision."
        return DataError(f"the dataset cannot be read ({_first_line(error)})", where=where, remedy=remedy)


def _is_reachable() -> bool:
    """Whether the hub answers a request at all."""
    from huggingface_hub import constants, get_session

    answers: list[object] = []

    def ask() -> None:
        with suppress(Exception):  # any network error: name resolution, routing, certificate
            answers.append(get_session().head(constants.ENDPOINT, timeout=REACH_SECONDS))

    if not constants.is_offline_mode():
        thread = threading.Thread(target=ask, daemon=True)  # name resolution has no timeout
        thread.start()
        thread.join(REACH_SECONDS)
    return bool(answers)


@contextmanager
def _offline() -> Iterator[None]:
    """Make the library use its cache without contacting the hub."""
    import datasets
    from huggingface_hub import constants

    modules: tuple[Any, ...] = (constants, datasets.config)
    before = [module.HF_HUB_OFFLINE for module in modules]
    for module in modules:
        module.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for module, offline in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = offline


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _plain(value: object, feature: Any) -> str:
    """A value as text; a class label as its name."""
    names = getattr(feature, "names", None)
    return str(names[value]) if names and isinstance(value, int) and 0 <= value < len(names) else plain_value(value)
