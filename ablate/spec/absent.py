"""The kinds `none` of families: parts that are not there, and so have no settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ablate.spec.base import refusal


def without_settings(value: Any, name: str, stored: Mapping[str, Any]) -> Any:
    """The data of a kind `none` without the settings that earlier versions stored with it, at their defaults.

    Args:
        value: What is validated.
        name: Of the slot, for the message.
        stored: Those settings with their defaults.

    Raises:
        ValidationError: One of them is set to something else; one block would have several hashes.
    """
    if not isinstance(value, Mapping):
        return value
    for setting, default in stored.items():
        if setting in value and value[setting] != default:
            raise refusal(
                (setting,),
                value[setting],
                f"kind `none` has no `{setting}`",
                f"Write `{name}: none` and nothing else of it.",
            )
    return {key: item for key, item in value.items() if key not in stored}
