"""The faults that `python -m benchmarks mutants` makes."""

from __future__ import annotations

import tomllib

from benchmarks.mutants import ACCEPTED, ROOT, draw, places

CODE = """def f(values: dict[str, int] | None = None, *, low: float = 1.0) -> list[int] | None:
    if low < 2 and values:
        return sorted(values, reverse=True)
    return [min(a + b, 3) for a, b in {"x": 1, "y": 2}.items()]
"""


def made(code: str) -> set[tuple[str, str]]:
    mutants = [mutant for make in places("ablate/stats/some.py", code) if (mutant := make()) is not None]
    assert all(mutant.group == "stats" and mutant.code != code for mutant in mutants)
    return {(mutant.before, mutant.after) for mutant in mutants}


def test_each_fault_is_made_and_nothing_in_annotations() -> None:
    found = {"".join(after.split()) for _, after in made(CODE)}
    expected = {
        "if low <= 2 and values:",
        "if low > 2 and values:",
        "if low < 2 or values:",
        "if low < 3 and values:",
        "return list(values, reverse=True)",
        "return sorted(values, reverse=False)",
        "return sorted(values, **{})",
        'return [max(a + b, 3) for a, b in {"x": 1, "y": 2}.items()]',
        'return [min(a - b, 3) for a, b in {"x": 1, "y": 2}.items()]',
        'return [min(a + b, 3) for a, b in {**{}, "y": 2}.items()]',
    }
    assert not {"".join(after.split()) for after in expected} - found
    assert not [after for after in found if "&None" in after]
    assert made("@dataclass(frozen=True)\nclass A:\n    b: int | None\n") == set()


def test_an_exception_of_a_module_among_others_is_left_as_it_is() -> None:
    found = made("try:\n    f()\nexcept (OSError, csv.Error):\n    g()\n")
    assert {after for _, after in found} == {"except (CosmicRayTestingException, csv.Error):"}


def test_a_sample_has_as_many_of_each_package_and_none_that_is_accepted() -> None:
    files = ["ablate/stats/schedule.py", "ablate/store/rows.py"]
    drawn = draw(files, 10, 3, set())
    assert [mutant.group for mutant in drawn] == ["stats"] * 5 + ["store"] * 5
    assert draw(files, 10, 3, set()) == drawn
    accepted = {(mutant.before, mutant.after) for mutant in drawn}
    others = draw(files, 10, 3, accepted)
    assert len(others) == 10
    assert not accepted & {(mutant.before, mutant.after) for mutant in others}


def test_an_assertion_is_no_fault_and_what_stands_beside_it_is() -> None:
    code = "pairs = dict(zip(some, others, strict=True), more=2)"
    mutants = [mutant for make in places("ablate/stats/some.py", code) if (mutant := make()) is not None]
    signature = [one for make in places("ablate/stats/some.py", "def f(a, *, b): pass") if (one := make()) is not None]
    assert [one.after for one in signature if not one.changes_no_result] == []
    assert {"".join(one.after.split()): one.changes_no_result for one in mutants} == {
        "pairs=dict(zip(some,others,strict=False),more=2)": True,
        "pairs=dict(zip(some,others,**{}),more=2)": True,
        "pairs=dict(zip(some,others,strict=True),more=3)": False,
        "pairs=dict(zip(some,others,strict=True),more=1)": False,
        "pairs=dict(zip(some,others,strict=True),**{})": False,
    }


def test_accepted_mutants_are_of_lines_that_are_there() -> None:
    code = {line.strip() for file in (ROOT / "ablate").rglob("*.py") for line in file.read_text().splitlines()}
    for one in tomllib.loads(ACCEPTED.read_text())["mutant"]:
        assert one["before"] in code
        assert one["why"].startswith(("equivalent: ", "harmless: "))
