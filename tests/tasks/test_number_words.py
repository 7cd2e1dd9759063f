"""Numbers in words, against numbers that a person wrote, and back by another rule."""

from __future__ import annotations

import pytest

from ablate.tasks.sources import BadRows, parse
from ablate.tasks.sources.number_words import english, german


@pytest.mark.parametrize(
    ("number", "in_english", "in_german"),
    [
        (1, "one", "eins"),
        (7, "seven", "sieben"),
        (11, "eleven", "elf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (67, "sixty-seven", "siebenundsechzig"),
        (76, "seventy-six", "sechsundsiebzig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred and one", "einhunderteins"),
        (1001, "one thousand and one", "eintausendeins"),
        (1100, "one thousand one hundred", "eintausendeinhundert"),
        (
            21_999,
            "twenty-one thousand nine hundred and ninety-nine",
            "einundzwanzigtausendneunhundertneunundneunzig",
        ),
        (101_040, "one hundred and one thousand and forty", "einhunderteintausendvierzig"),
    ],
)
def test_numbers_as_people_write_them(number: int, in_english: str, in_german: str) -> None:
    assert english(number) == in_english
    assert german(number) == in_german


def test_the_source_has_different_rows() -> None:
    rows = list(parse("builtin:number_words").rows(("german", "english"), BadRows(True), print))
    assert len({row.values[0] for row in rows}) == len({row.values[1] for row in rows}) == len(rows) == 20_000
    assert rows[1].values == ("achtunddreißig", "thirty-eight")
