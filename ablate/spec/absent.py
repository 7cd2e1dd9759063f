"""The kinds `none` of families: absent parts, which have no settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ablate.spec.base import refusal


def without_settings(value: Any, name: str, stored: Mapping[str, Any]) -> Any:
    """Remove settings with default values from the data of a kind `none`; earlier versions stored them.

    Args:
        value: The data to validate.
        name: Name of the slot, for the message.
        stored: The settings with their defaults.

    Raises:
        ValidationError: A setting is not at its default. Equal blocks would have different hashes.
    """
    if not isinstance(value, Mapping):
        return value
    for setting, default in stored.items():
        if setting in value and value[setting] != default:
            raise refusal(
                (setting,),
                value[setting],
                f"kind `none` has no `{setting}`",
                f"Write `{name}: none` without settings.",
            )
    return {key: item for key, item in value.items() if key not in stored}
