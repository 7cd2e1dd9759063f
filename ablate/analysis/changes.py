"""What a variant changes in the baseline, in words: parts that it takes away, and whatever else it does.

The words are the texts of the space (`ablate.spec.paths`), or else they are made from the paths that its settings set.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ablate.spec.activations import LABELS
from ablate.spec.design import BASELINE, split_axis
from ablate.spec.paths import short_path, without_texts
from ablate.store.records import StudyRecord, VariantRecord

_PARTS = {
    "block.norm": "the normalisation",
    "block.mlp": "the MLP",
    "block.skips.mixer": "the skip around {mixer}",
    "block.skips.mlp": "the skip around the MLP",
    "block.mixer.query": "the query projection",
    "block.mixer.key": "the key projection",
    "block.mixer.value": "the value projection",
    "block.mixer.output": "the output projection",
    "block.dropout": "the dropout in the blocks",
    "model.dropout": "the dropout on the embeddings",
    "model.final_norm": "the final normalisation",
    "model.positions": "the positions",
    "model.tied_head": "the tied head",
}
"""Path to the name of its part. Other parts are called by the last word of their path."""
_KINDS_OF = {"block.mixer.shaping": "{value} {mixer}"}
"""Path to what its values are called, where value and last word of the path would say the same thing twice."""
_WORDS = {"lr": "learning rate"}
"""Last words of paths that are not words of a reader."""
_VALUES: Mapping[str, Mapping[str, str]] = {"activation": {str(name): of for name, of in LABELS.items()}}
"""Last words of paths to what their values are called."""
NOTHING = (None, False, "none", "identity")
"""Values that stand for no part, with 0, which equals False."""
_LIMITS = ("window",)
"""Integers without which there is no limit. Any other integer that is not set has a default: it is not removed."""
_MOST = 24
"""Characters of a value that is written out."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a variant changes in the baseline; both empty where it is not known in words.

    Attributes:
        removed: Parts that it takes away: `the skip around attention`.
        otherwise: What else it does: `replacing the attention mixer by fnet`.
        combines: Whether it does several things at once.
    """

    removed: tuple[str, ...] = ()
    otherwise: tuple[str, ...] = ()
    combines: bool = False

    @property
    def only_removes(self) -> bool:
        """Whether it takes parts away and does nothing else."""
        return bool(self.removed) and not self.otherwise

    @property
    def parts(self) -> tuple[str, ...]:
        """Each thing that it does, in a few words: `the norm`, `softmax attention → SimpleTRON`."""
        return (*self.removed, *map(_brief_words, self.otherwise))

    @property
    def words(self) -> str:
        """All of it in a few words, also what it takes away if it does more; empty where it is not known."""
        return " + ".join(self.parts) if len(self.parts) == 1 or not self.otherwise else self.title

    @property
    def title(self) -> str:
        """What the variant is: `no output projection`, `softmax attention → SimpleTRON`; empty where not known."""
        removed = [f"no {part.removeprefix('the ').removeprefix('all ')}" for part in self.removed]
        return " + ".join((*removed, *(part.removeprefix("the ") for part in self.parts[len(removed) :])))

    @property
    def point(self) -> str:
        """What a point of a search has that the baseline has not, numbers with what they are of: `gelu + lr 0.003`."""
        parts = [f"no {part.removeprefix('the ')}" for part in self.removed]
        for part in self.parts[len(parts) :]:
            old, _, new = part.partition(" → ")
            named = old.rpartition(" ")[0]
            parts.append(part if not new else f"{named} {new}" if named and new[0].isdigit() else new)
        return " + ".join(parts)


def setting_changes(record: StudyRecord, origin: str = "") -> Callable[[str, str], Change]:
    """A function from a switch and a setting, or a spec path and its value, to what it changes in a variant.

    Args:
        origin: Name of that variant; the baseline of the study by default.
    """
    space, texts = without_texts(record.space)
    switches: Mapping[str, Mapping[str, Any]] = space.get("switches", {})
    baseline = next(variant for variant in record.variants if variant.name == (origin or record.baseline))

    def text_of(switch: str, setting: str) -> Mapping[str, str]:
        own = texts.get(("switches", switch, setting), {})
        return own or (
            {} if setting == next(iter(switches.get(switch, ())), "") else texts.get(("switches", switch), {})
        )

    @functools.cache
    def change(switch: str, setting: str) -> Change:
        here = baseline.settings.get(switch, "")
        if said := _said(text_of(switch, here), text_of(switch, setting)):
            return said
        settings = switches.get(switch, {})
        value = {} if _at(baseline.spec, switch) is None else {switch: _number(setting)}
        paths = settings.get(setting, value)
        dropped = settings.get(here, {}).keys() - paths.keys()
        changed = {path: (_at(baseline.spec, path), value) for path, value in paths.items()}
        changed |= {path: (_at(baseline.spec, path), _at(space, path)) for path in sorted(dropped)}
        return _derived(changed, _mixer(baseline.spec))

    return change


def changes_of(record: StudyRecord) -> dict[str, Change]:
    """The change of each variant by its name; that of the baseline is empty."""
    space, texts = without_texts(record.space)
    switches = space.get("switches", {})
    baseline = next(variant for variant in record.variants if variant.name == record.baseline)
    turned = setting_changes(record)

    def change(variant: VariantRecord) -> Change:
        name, place = split_axis(variant.name)
        here = split_axis(baseline.name)[1]
        if place != here and not record.traits.finds_best:
            return Change()
        changed = variant.settings.items() - baseline.settings.items()
        others = [item for item in variant.settings.items() if item in changed and (not here or item[0] in switches)]
        if said := _said({}, texts.get(("variants", name), {})):
            return replace(said, combines=len(others) > 1)
        removed, otherwise = dict[str, None](), dict[str, None]()
        for item in others:
            removed |= dict.fromkeys(turned(*item).removed)
            otherwise |= dict.fromkeys(turned(*item).otherwise)
        return Change(tuple(removed), tuple(otherwise), combines=len(removed) + len(otherwise) > 1)

    return {variant.name: change(variant) for variant in record.variants}


def titles_of(changes: Mapping[str, Change]) -> dict[str, str]:
    """The title of each variant by its name; the name itself where its change is not known, or others change the same.

    Variants that are compared at several places have a title under their name without the place, too.
    """
    known = Counter(change.title for change in changes.values())
    titles = {
        name: change.title if known[change.title] == 1 and change.title and name != BASELINE else name
        for name, change in changes.items()
    }
    return {split_axis(name)[0]: split_axis(title)[0] for name, title in titles.items()} | titles


_PLACES = {"rung": "on rung {}", "task": "on {}"}
"""Axis on which a study compares its variants, to its places in words; others are called as spec paths are."""


def variant_titles(record: StudyRecord) -> dict[str, str]:
    """What a reader calls each variant, those that tune included, by its name.

    That is its title, with the place where the study compares it: `no attention skip on the largest rung`. A point of
    a search is called by what it has (`Change.point`).
    """
    changes = changes_of(record)
    if record.traits.finds_best:
        said = {name: change.point or name for name, change in changes.items()}
    else:
        titles = {split_axis(name)[0]: title for name, title in titles_of(changes).items() if title != name}
        names = {variant.name: split_axis(variant.name) for variant in record.variants}
        largest = max(_rung(place) for _, place in names.values())
        said = {
            name: f"{titles.get(base, base)} {_axis_words(at, largest)}".strip() for name, (base, at) in names.items()
        }
    for scout in record.scout_variants:  # `NAME (PATH=VALUE, ...)`
        base, _, tried = scout.name.removesuffix(")").partition(" (")
        said[scout.name] = (
            f"{said.get(base, base)} ({', '.join(map(_value, tried.split(', ')))})" if tried else scout.name
        )
    known = Counter(said.values())
    return {name: title if known[title] == 1 else name for name, title in said.items()}


def _rung(place: str) -> float:
    axis, _, value = place.partition("=")
    return float(value) if axis == "rung" else 0.0


def _axis_words(place: str, largest: float) -> str:
    """`rung=4` as `on the largest rung`, `task=copy` as `on copy`, `model.width=64` as `at width 64`."""
    if _rung(place) == largest > 1:
        return "on the largest rung"
    axis, _, value = place.partition("=")
    if axis in _PLACES:
        return _PLACES[axis].format(value)
    return f"at {', '.join(map(_value, place.split(',')))}" if place else ""


def _value(setting: str) -> str:
    """`training.optimizer.lr=0.0048765` as `lr 0.00488`."""
    path, _, value = setting.partition("=")
    return f"{_last_words(path)} {_number(value)}".strip()


def _last_words(path: str) -> str:
    last = path.rpartition(".")[2]
    return _WORDS.get(last, last.replace("_", " "))


def setting_names(record: StudyRecord) -> Callable[[str, str], str]:
    """A function from a switch and a setting to what titles of variants call it: `relu_squared` is `ReLU²`.

    A setting of a switch that chooses nothing but an activation is called by the one that it trains, whatever its own
    name: without a value of its own it has that of the model.
    """
    space = without_texts(record.space)[0]

    @functools.cache
    def name(switch: str, setting: str) -> str:
        settings = space.get("switches", {}).get(switch, {})
        path, *others = {path for paths in settings.values() for path in paths} or {""}
        called = _VALUES.get(_last_words(path), {})
        trained = settings.get(setting, {}).get(path, _at(space, path)) if called and not others else None
        return called.get(trained, trained) if isinstance(trained, str) else setting.replace("_", " ")

    return name


def setting_titles(names: Iterable[str]) -> dict[str, str]:
    """Switches and spec paths in a few words, different ones: `query_key_norm` as `query key norm`, a path by its end.

    `training.optimizer.lr` is `learning rate`, unless another path ends so: then it is `optimizer learning rate`.
    """
    parts = {name: [*name.split(".")[:-1], _last_words(name)] for name in names}
    most = max(map(len, parts.values()), default=0)
    ends = [{name: " ".join(words[-n:]).replace("_", " ") for name, words in parts.items()} for n in range(1, most + 1)]
    known = [Counter(of.values()) for of in ends]
    return {
        name: next((of[name] for of, count in zip(ends, known, strict=True) if count[of[name]] == 1), name)
        for name in parts
    }


def in_words(text: str, titles: Mapping[str, str], named: Collection[str] = ()) -> str:
    """A sentence in which the names of variants that are settings or have a place are replaced by their titles.

    Args:
        named: Variants that it names, whose names may be words.
    """
    places = {name: f"{BASELINE} at {of.replace('=', ' ')}" for name in titles for base, of in [split_axis(name)]
              if of and base == BASELINE}  # fmt: skip
    titles = {**titles, **places}
    names = sorted((name for name in titles if ("=" in name or name in named) and titles[name] != name), reverse=True)
    if not names:
        return text
    pattern = rf"(?<![\w=,.])(?:{'|'.join(map(re.escape, names))})(?![\w=@])(?!,\w)"
    return re.sub(pattern, lambda found: titles[found[0]], text)


def part_words(path: str, *specs: Mapping[str, Any]) -> str:
    """The name of the part of a model that a spec path sets, such as `skip around the mixer`; else the path.

    Args:
        specs: Of the models that it is about: with attention in all of them, a skip goes around attention.
    """
    (mixer, *others) = {_mixer(spec) for spec in specs} or {"the mixer"}
    return _PARTS.get(path, path).format(mixer="the mixer" if others else mixer).removeprefix("the ")


def part_value(path: str, value: Any) -> Any:
    """`yes` or `no` for a value that only adds or removes the part at a spec path; any other value as it is."""
    if path in _PARTS and (value is None or isinstance(value, bool) or value in (0, 1)):
        return "no" if _is_nothing(value) else "yes"
    return value


def effect_titles(record: StudyRecord, names: Iterable[str]) -> dict[str, str]:
    """The titles of effects by their names, `switch=setting` joined by colons: `no norm × no output projection`.

    An effect is that of leaving the first setting of its switch, which the variant `baseline` has, whichever variant
    the others are compared with.
    """
    change = setting_changes(record, BASELINE if any(one.name == BASELINE for one in record.variants) else "")

    def title(name: str) -> str:
        said = [change(*one.split("=", 1)).title or one for one in name.split(":")]
        return said[0] if len(said) == 1 else " × ".join(one.rpartition("→ ")[2] for one in said)

    titles = {name: title(name) for name in names}
    known = Counter(titles.values())
    return {name: said if known[said] == 1 else name for name, said in titles.items()}


def change_of(setting: Mapping[str, Any], spec: Mapping[str, Any]) -> Change:
    """What a setting, paths with their values, changes in a plain spec, in words made from its paths."""
    return _derived({path: (_at(spec, path), value) for path, value in setting.items()}, _mixer(spec))


_EXPLAINED = re.compile(r"(?P<text>.+) \((?P<meaning>[^()]+)\)")
"""A text that ends with an explanation in brackets."""


def meanings_of(record: StudyRecord) -> dict[str, str]:
    """What the names mean that texts of a study explain in brackets at their end, and what the baseline of a search is.

    `replaces: the block by SAS (no attention skip)` calls a variant SAS, and means that it has no attention skip.
    """
    texts = (text for held in without_texts(record.space)[1].values() for text in held.values())
    found = filter(None, map(_EXPLAINED.fullmatch, texts))
    said = {match["text"].rpartition(" by ")[2]: match["meaning"] for match in found}
    return {BASELINE: _baseline_point(record), **said} if record.traits.finds_best else said


def _baseline_point(record: StudyRecord) -> str:
    """What the baseline of a search has of all that its points change: `ReLU activation, learning rate 0.004`."""
    parts = dict.fromkeys(part for change in changes_of(record).values() for part in change.parts)
    replaced = (part.partition(" → ")[0].removeprefix("the ") for part in parts if " → " in part)
    return ", ".join(dict.fromkeys(replaced))


def _unexplained(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Texts without what they explain in brackets at their end."""
    matches = {word: _EXPLAINED.fullmatch(text) for word, text in texts.items()}
    return {word: match["text"] if match else texts[word] for word, match in matches.items()}


def _said(before: Mapping[str, str], after: Mapping[str, str]) -> Change | None:
    """The change from a setting with one text to a setting with another, as the texts say it; None if they do not."""
    before, after = _unexplained(before), _unexplained(after)
    back, there = before.get("removes"), after.get("removes")
    if not before and after:
        return Change(removed=(there,)) if there else Change(otherwise=(f"replacing {after['replaces']}",))
    if back and not after:
        return Change(otherwise=(f"adding {back}",))
    (old, _, was), (_, _, new) = (text.get("replaces", "").partition(" by ") for text in (before, after))
    if was and (new or not after):
        return Change(otherwise=(f"replacing {was} by {new or old}",))
    return None


def _number(text: str) -> Any:
    """The value of a spec path from its text, with three digits if it has decimals."""
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else float(f"{value:.3g}")


def _derived(changed: Mapping[str, tuple[Any, Any]], mixer: str) -> Change:
    """The change of one setting, from its paths with the values before and after.

    A setting often sets several paths, of which one is its subject and the others only support it. The subject is the
    first of these that occurs: a kind replaced by another, a part removed (perhaps with a substitute), a part or a
    number added, a number changed. Exceptions of single layers count only where a setting has nothing else.
    """
    paths = {short_path(path): values for path, values in changed.items() if values[0] != values[1]}
    ordinary = {path: values for path, values in paths.items() if not path.startswith("model.exceptions")}
    replaced, removed, added, numbers, others = list[str](), list[str](), list[str](), list[str](), list[str]()
    for path, (before, after) in (ordinary or paths).items():
        last = _last_words(path)
        called = _VALUES.get(last, {})
        was, now = (called.get(word, word) if isinstance(word, str) else word for word in map(_word, (before, after)))
        if path == "block" and isinstance(before, Mapping) and isinstance(after, Mapping):
            was, now = _word(before.get("mixer")), _word(after.get("mixer"))
            if was != now:
                replaced.append(f"replacing the {was} mixer by {now}")
            else:
                others.append("changing the block")
        elif after is None and type(before) is int and last not in _LIMITS:
            others.append(f"changing the {last} from {before} to its default")
        elif _is_nothing(after) and not _is_nothing(before):
            removed.append(_PARTS.get(path, f"the {last}").format(mixer=mixer))
        elif _is_nothing(before) and type(after) in (int, float):
            numbers.append(f"setting the {last} to {_brief(after)}")
        elif _is_nothing(before) and not _is_nothing(after):
            added.append(_valued(path, _brief(now), last, mixer))
        elif isinstance(was, str) and isinstance(now, str) and was != now:
            replaced.append(f"replacing the {_valued(path, was, last, mixer)} by {now}")
        elif _brief(was) and _brief(now) and was != now:
            others.append(f"changing the {last} from {_brief(was)} to {_brief(now)}")
        else:
            others.append(f"changing {path}")
    if removed and not replaced:
        *parts, part = removed
        return Change(removed=(*parts, f"{part} (with {' and '.join(added)} instead)" if added else part))
    return Change(otherwise=tuple(replaced or [*(f"adding {part}" for part in added), *numbers] or others))


def _valued(path: str, value: str, last: str, mixer: str) -> str:
    """A value with what it is of: `rms query key norm`."""
    if value and path in _KINDS_OF:
        return _KINDS_OF[path].format(value=value.replace("_", " "), mixer=mixer)
    return " ".join(filter(None, (value, last)))


_GERUNDS = (
    (re.compile(r"replacing no .+? by (.+)"), r"\1"),
    (re.compile(r"replacing (.+) by (.+)"), r"\1 → \2"),
    (re.compile(r"changing the (.+) from (\S+) to (\S+)"), r"\1 \2 → \3"),
    (re.compile(r"setting the (.+) to (\S+)"), r"\1 \2"),
    (re.compile(r"adding (.+)"), r"with \1"),
)


def _brief_words(gerund: str) -> str:
    for pattern, shape in _GERUNDS:
        if match := pattern.fullmatch(gerund):
            return match.expand(shape)
    return gerund


def _at(plain: Mapping[str, Any], path: str) -> Any:
    """The value at a path as switches write it, or of a parameter of a trainer; None if there is none."""
    parameter = ((plain.get("trainer") or {}).get("parameters") or {}).get(path)
    if parameter is not None:
        return parameter.get("default") if isinstance(parameter, Mapping) else parameter
    here: Any = {**plain, "block": plain.get("model", {}).get("block")}
    for name in path.split("."):
        here = here.get(name) if isinstance(here, Mapping) else None
    return here


def _mixer(spec: Mapping[str, Any]) -> str:
    """What a skip goes around: attention by its name, any other mixer as the mixer."""
    return "attention" if _word(_at(spec, "block.mixer")) == "attention" else "the mixer"


def _word(value: Any) -> Any:
    """A value, or the kind of a mapping that has one."""
    return value.get("kind", value) if isinstance(value, Mapping) else value


def _is_nothing(value: Any) -> bool:
    return _word(value) in NOTHING


def _brief(value: Any) -> str:
    """A bare value as text, if it is short; else empty."""
    text = "" if isinstance(value, (bool, Mapping)) or value is None else str(value)
    return text if len(text) <= _MOST else ""
