"""The space with which a study continues: the one in the store, or the same with other seeds or another design."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ablate.errors import SpaceError
from ablate.spec.sentences import describe
from ablate.spec.space import SpaceSpec

_SEEDS = re.compile(r"([0-9]{1,6})(?::([0-9]{1,6}))?")


def stored_space(plain: Mapping[str, Any], study: str) -> SpaceSpec:
    """The space that a store keeps of a study.

    Args:
        plain: `space` of the study's record.
        study: Name of the study, for messages.

    Raises:
        SpaceError: This version, or a plugin that is not loaded, does not make a space of it.
    """
    return _validated(plain, f"the stored space of {study}", "Load the plugins of the study with --plugin.")


def with_seeds(space: SpaceSpec, seeds: str) -> SpaceSpec:
    """The space with other seeds in its design.

    Args:
        space: The space.
        seeds: `N` for N seeds of each variant, or `START:MAX` for a schedule.

    Raises:
        SpaceError: The text is neither, or the design does not take such seeds.
    """
    parsed = _SEEDS.fullmatch(seeds)
    if parsed is None:
        raise SpaceError(
            "invalid seeds",
            where="--seeds",
            expected="a number of seeds, or START:MAX such as 3:12",
            got=repr(seeds),
        )
    number, most = parsed.groups()
    given = int(number) if most is None else {"start": int(number), "max": int(most)}
    plain = space.model_dump(mode="json")
    changed = _validated(plain | {"design": plain["design"] | {"seeds": given}}, f"--seeds {seeds}", "")
    changed._text = space.text
    return changed


def with_design(space: SpaceSpec, kind: str) -> SpaceSpec:
    """The space with another design, as a study of its own that shares the trials which both need.

    Args:
        space: The space.
        kind: Of the design; its fields but for the seeds have their defaults.

    Raises:
        SpaceError: There is no such design, or it does not fit the space.
    """
    plain = space.model_dump(mode="json")
    seeds = plain["design"].get("seeds", {})
    given = {"seeds": seeds} if isinstance(seeds, int) else {}
    changed = {"name": f"{space.name}_{kind}", "design": {"kind": kind} | given, "claims": []}
    made = _validated(plain | changed, f"--design {kind}", "")
    made._text = space.text
    return made


def _validated(plain: Mapping[str, Any], where: str, remedy: str) -> SpaceSpec:
    try:
        return SpaceSpec.model_validate(plain)
    except ValidationError as error:
        loc, said = describe(error)[0]
        raise SpaceError(f"{'.'.join(map(str, loc))}: {said}", where=where, remedy=remedy) from None
