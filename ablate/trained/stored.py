"""Variants read back from where they were stored, in a store or beside weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ablate.errors import AblateError, PluginError, SpaceError
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
