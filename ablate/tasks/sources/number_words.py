"""`builtin:number_words`: integers in English and German words, a translation dataset that needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from ablate.spec.task import Say
from ablate.tasks.sources import BadRows, Row, Source, pick_columns

COUNT, STEP = 20_000, 37
"""Numbers 1, 38, 75 ... below 740,000."""

_ENGLISH = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_ENGLISH_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_GERMAN = [
    "null",
    "ein",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
]
_GERMAN_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]


class NumberWords(Source):
    """20,000 numbers below 740,000 as words, in the columns `english` and `german`.

    German puts ones before tens and joins all words, so a translator must reorder and segment.
    """

    kind: Literal["builtin:number_words"] = "builtin:number_words"
    columns = ("english", "german")

    def rows(self, columns: Sequence[str], bad_rows: BadRows, say: Say) -> Iterator[Row]:
        """A row for each number."""
        for number in range(1, 1 + COUNT * STEP, STEP):
            values = {"english": english(number), "german": german(number)}
            yield Row(f"{self.kind}#{number}", pick_columns(columns, values, self.kind))


def english(number: int) -> str:
    """A number from 1 to 999,999 in British English words."""
    if number >= 1000:
        rest = number % 1000
        join = " and " if 0 < rest < 100 else " "
        return f"{english(number // 1000)} thousand" + (join + english(rest) if rest else "")
    if number >= 100:
        return f"{_ENGLISH[number // 100]} hundred" + (f" and {english(number % 100)}" if number % 100 else "")
    if number >= 20:
        return _ENGLISH_TENS[number // 10 - 2] + (f"-{_ENGLISH[number % 10]}" if number % 10 else "")
    return _ENGLISH[number]


def german(number: int) -> str:
    """A number from 1 to 999,999 as one German word; 1 at its end is `eins`."""
    return _german(number) + ("s" if number % 100 == 1 else "")


def _german(number: int) -> str:
    if number >= 1000:
        return f"{_german(number // 1000)}tausend" + (_german(number % 1000) if number % 1000 else "")
    if number >= 100:
        return f"{_GERMAN[number // 100]}hundert" + (_german(number % 100) if number % 100 else "")
    if number >= 20:
        ones = f"{_GERMAN[number % 10]}und" if number % 10 else ""
        return ones + _GERMAN_TENS[number // 10 - 2]
    return _GERMAN[number]
