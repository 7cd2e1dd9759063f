"""Variants read back from where they were stored, in a store or beside weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from ablate.errors import AblateError, PluginError, SpaceError
from ablate.spec.code import Code, code_changes
from ablate.spec.sentences import describe
from ablate.spec.variant import VariantSpec


def stored_variant(plain: Any, where: str, *, homes: Mapping[str, str], trained_with: str) -> VariantSpec:
    """The variant of a trial.

    Args:
        plain: The variant as it was stored.
        where: Names the trial in messages.
        homes: Kind of a plugin to the file or package that defined it, as far as that is known.
        trained_with: The version of ablate that trained the trial, in words.

    Raises:
        PluginError: It names a kind that is not known here.
        SpaceError: This version of ablate cannot read it.
    """
    try:
        return VariantSpec.model_validate(plain)
    except ValidationError as error:
        raise _unreadable(error, where, homes, trained_with) from None


def check_code(now: Code, trained_by: Code, where: str, say: Callable[[str], None], *, accept: bool | None) -> None:
    """Refuse what a trial left if the code of its kinds has changed; say so if that is accepted or not known.

    Args:
        now: The code as it is.
        trained_by: The code that trained the trial.
        where: Names the trial in messages.
        say: Receives a warning.
        accept: Whether the code may have changed; None if it never may, as for what is published.

    Raises:
        PluginError: The code has changed.
    """
    if now.identity == trained_by.identity:
        return
    changes = code_changes(trained_by.content, now.content)
    texts = [f"{change.kind} ({change.what})" for change in changes] or ["its kinds"]
    if trained_by.identity and not accept:
        raise PluginError(
            f"the code is not that with which the trial was trained: {'; '.join(texts)}",
            where=where,
            remedy="Bring back the file as it was."
            if accept is None
            else "Bring back the file as it was. --accept-changed-code takes the code as it is now.",
        )
    known = "another version of" if trained_by.identity else "a version that was not recorded of"
    say(f"{where} was trained with {known} {'; '.join(texts)}")


def _unreadable(error: ValidationError, where: str, homes: Mapping[str, str], trained_with: str) -> AblateError:
    for line in error.errors(include_url=False):
        if line["type"] == "unknown_kind":
            noun, kind = line["ctx"]["noun"], line["ctx"]["kind"]
            home = homes.get(kind)
            return PluginError(
                f"the trial uses the {noun} kind `{kind}`, which no loaded plugin defines",
                where=where,
                expected=f"the plugin {home}" if home else f"the plugin that defines the {noun} kind `{kind}`",
                remedy=f"Name its file: `--plugin {home}`."
                if home and home.endswith(".py")
                else f"Install the package {home}."
                if home
                else "Name its file with `--plugin FILE`, or install the package that brings it.",
            )
    (path, problem), *_ = describe(error)
    return SpaceError(
        f"this version of ablate cannot read its spec: `{'.'.join(map(str, path))}`: {problem}",
        where=where,
        remedy=f"If a plugin of yours has changed, load it as it was; else install the version of ablate that trained "
        f"the trial ({trained_with}).",
    )
