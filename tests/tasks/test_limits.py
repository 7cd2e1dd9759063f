"""Which numbers the fields of tasks take: no count or share below nothing, no share above the whole."""

from __future__ import annotations

from typing import Annotated, Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from ablate.plugins import FAMILIES

COUNTS_FROM_0 = {"test_rows", "test_pairs", "shortest", "grammar"}
SHARES_ABOVE_0 = {"validation_share", "hidden_share", "recency"}
SHARES_UP_TO_1 = {"mask_share", "random_share"}
NOT_SHARES = {"recency", "length_penalty"}


def takes(field: FieldInfo, value: float) -> bool:
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[(field.annotation, *field.metadata)])  # type: ignore[valid-type]
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("kind", sorted(FAMILIES["tasks"].members()))
def test_a_count_is_at_least_1_and_a_share_at_most_the_whole(kind: str) -> None:
    for name, field in FAMILIES["tasks"].members()[kind].model_fields.items():
        types = {field.annotation, *get_args(field.annotation)}
        if int in types:
            assert [takes(field, value) for value in (-1, 0)] == [False, name in COUNTS_FROM_0], name
        elif float in types:
            least = [takes(field, value) for value in (-0.1, 0.0)]
            most = [takes(field, value) for value in (0.999, 1.0, 1.001)]
            assert least == [False, name not in SHARES_ABOVE_0], name
            assert most == [True, name in SHARES_UP_TO_1 | NOT_SHARES, name in NOT_SHARES], name
