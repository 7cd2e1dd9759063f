"""The identity of the code that gives a trial its numbers: of users' kinds by their source, of ours by revisions.

The key of a trial holds it, so that a trial of other code is another trial. It is empty for a spec of our own kinds at
their first revision: keys of such trials are those of ablate before code counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ablate.spec.base import DeclaresSources, Kinded, Spec, content_hash, is_users
from ablate.spec.source_code import ModuleCode, differences, read_definitions, read_modules

REVISION = 1
"""Revision of the training loop and of what kinds share. Raise it when it changes golden losses or golden gradients; if
only some kinds change them, raise the `code_revision` of those. `tests/training/test_golden_losses.py` checks it."""
_MOST_CHANGES = 4


class NamesKind:
    """Annotation of a field whose text names a member of a family, such as the address of data."""

    @staticmethod
    def named(text: str) -> Kinded:
        """The member that a valid text names."""
        raise NotImplementedError


@dataclass(frozen=True)
class Code:
    """The code of a variant.

    Attributes:
        content: As JSON: `kinds` with the file and the digests of each user's kind, `revisions` of our kinds that are
            not at their first, and the content of the `stage` whose weights it starts from; without those that are
            empty.
    """

    content: Mapping[str, Any] = field(default_factory=dict)
    unknown: ClassVar[Code]
    """That of a trial of which no code was recorded."""

    @cached_property
    def identity(self) -> str:
        """Hash of what counts, 64 hexadecimal digits; empty if there is nothing to identify."""
        return content_hash(_what_counts(self.content)) if self.content else ""

    def after(self, stage: Code) -> Code:
        """The code of a variant that starts from the weights of a stage."""
        return Code({**self.content, "stage": stage.content}) if stage.content else self


Code.unknown = Code()


@dataclass(frozen=True, slots=True)
class CodeChange:
    """What differs between two versions of the code of a kind.

    Attributes:
        what: Its file and what changed there.
    """

    kind: str
    what: str


class CodeReader:
    """Reads the source of each kind once; a new reader sees files as they are then.

    Args:
        root: The folder to which files that a trainer declares are relative; None: the working folder.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._kinds: dict[type[Spec], tuple[int, dict[str, Any]]] = {}
        self._declared: dict[int, tuple[DeclaresSources, dict[str, Any]]] = {}
        self._sources: dict[tuple[tuple[str, Path], ...], dict[str, Any]] = {}

    def of(self, spec: Spec) -> Code:
        """The code of the kinds in a spec, without that of a stage whose weights it starts from."""
        revisions = {"training": REVISION} if REVISION > 1 else {}
        kinds: dict[str, Any] = {}
        if Kinded.identified:
            for kind in dict.fromkeys(map(type, specs_in(spec))):
                label, (revision, entry) = _label(kind), self._read(kind)
                if entry:
                    kinds[label] = entry
                if revision > 1:
                    revisions[label] = revision
        if (declared := spec.declared_sources()) is not None:
            if id(declared) not in self._declared:  # mostly all variants of a space have the same, or the same files
                root = self._root or Path.cwd()
                files = tuple(declared.source_files(root).items())
                if files not in self._sources:
                    self._sources[files] = declared.code(root)
                self._declared[id(declared)] = declared, self._sources[files]
            kinds |= self._declared[id(declared)][1]
        content = {"kinds": dict(sorted(kinds.items())), "revisions": dict(sorted(revisions.items()))}
        return Code({name: value for name, value in content.items() if value})

    def _read(self, kind: type[Spec]) -> tuple[int, dict[str, Any]]:
        if kind not in self._kinds:
            revision = 1 + sum(vars(one).get("code_revision", 1) - 1 for one in kind.__mro__)
            self._kinds[kind] = revision, _entry(kind)
        return self._kinds[kind]


def code_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[CodeChange, ...]:
    """What changed between the contents of two codes; `before` is empty if no code was recorded."""
    return tuple(_changes(before, after, "", known=bool(before)))


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], where: str, *, known: bool) -> Iterator[CodeChange]:
    old, new = before.get("kinds", {}), after.get("kinds", {})
    for label in sorted({*old, *new}):
        noun = "file" if label.startswith("source ") else "kind"
        name = f"the {noun} `{label.rpartition(' ')[2]}`{where}"
        file = (new.get(label) or old[label])["file"]
        if not known:
            yield CodeChange(name, f"{file}; the version that trained them was not recorded")
        elif label in old and label in new:
            found = differences(_modules(old[label]), _modules(new[label]))
            more = [f"{len(found) - _MOST_CHANGES} more changes"] if len(found) > _MOST_CHANGES else []
            if found:
                yield CodeChange(name, f"{file}: {', '.join([*found[:_MOST_CHANGES], *more])}")
        else:
            yield CodeChange(name, f"{file}; {'ablate' if label in old else 'a user'} defines it now")
    old, new = before.get("revisions", {}), after.get("revisions", {})
    for label in sorted({*old, *new}):
        if (one := old.get(label, 1)) != (other := new.get(label, 1)):
            kind = "ablate's training" if label == "training" else f"ablate's kind `{label.rpartition(' ')[2]}`"
            yield CodeChange(f"{kind}{where}", f"revision {other} instead of {one}")
    stages = before.get("stage", {}), after.get("stage", {})
    if any(stages):
        yield from _changes(*stages, " in the stage before", known=known)


def _modules(entry: Mapping[str, Any]) -> dict[str, ModuleCode]:
    return {name: ModuleCode(one["whole"], one["parts"]) for name, one in entry["modules"].items()}


def _what_counts(content: Mapping[str, Any]) -> dict[str, Any]:
    """What of a content counts: neither the names of files nor the digests that only explain."""
    counted = dict(content)
    if "kinds" in content:
        counted["kinds"] = {
            label: {name: module["whole"] for name, module in entry["modules"].items()}
            for label, entry in content["kinds"].items()
        }
    if "stage" in content:
        counted["stage"] = _what_counts(content["stage"])
    return counted


def specs_in(value: Any) -> Iterator[Spec]:
    """A spec and all specs in it, those among them that texts and settings name."""
    if isinstance(value, Spec):
        yield value
        yield from specs_in(value.specs_beside())
        for name, described in type(value).model_fields.items():
            if described.exclude:  # not part of what the spec says
                continue
            inside = getattr(value, name)
            for mark in described.metadata:
                if isinstance(mark, type) and issubclass(mark, NamesKind) and isinstance(inside, str):
                    yield from specs_in(mark.named(inside))
            yield from specs_in(inside)
    elif isinstance(value, Mapping):
        for inside in value.values():
            yield from specs_in(inside)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for inside in value:
            yield from specs_in(inside)


def _label(kind: type[Spec]) -> str:
    """The family and the name of a kind; of another class of specs, its name."""
    named = issubclass(kind, Kinded) and "kind" in kind.model_fields
    return f"{kind.family.noun} {kind.kind_name()}" if named else kind.__name__  # type: ignore[attr-defined]


def _entry(kind: type[Spec]) -> dict[str, Any]:
    """File and modules of a kind, with those of the users' classes that it inherits from; empty if it is all ours."""
    modules: dict[str, ModuleCode] = {}
    where = ""
    for home, member in _homes(kind).items():
        file = getattr(sys.modules.get(home), "__file__", None)
        if file is None:
            found, name = read_definitions(member), "typed in, without a file"
        else:
            found = read_modules(Path(file), str(getattr(sys.modules[home], "__package__", None) or ""))
            name = Path(file).name
        if where:
            found = {beside or Path(name).stem: code for beside, code in found.items()}
        modules, where = found | modules, where or name
    plain = {name: {"whole": code.whole, "parts": dict(code.parts)} for name, code in sorted(modules.items())}
    return {"file": where, "modules": plain} if where else {}


def _homes(kind: type[Spec]) -> dict[str, type]:
    """The users' modules that make a kind what it is, to a class of each: its own first."""
    homes: dict[str, type] = {}
    for member in kind.__mro__:
        if is_users(member.__module__):
            made = Kinded.identified.get(member, ())
            for home in (member.__module__, *made):
                homes.setdefault(home, member)
    return homes


def timed_identity(variant_hash: str, code: str) -> str:
    """The identity of a baseline beside which variants are timed.

    Args:
        variant_hash: Content hash of its spec.
        code: Identity of the code of its trials.
    """
    return content_hash({"variant": variant_hash, "code": code}) if code else variant_hash


def stage_identity(variant_hash: str, data_fingerprint: str) -> str:
    """The identity of a stage: that of the variant that is trained before another, and of its data."""
    return content_hash({"variant": variant_hash, "data": data_fingerprint})
