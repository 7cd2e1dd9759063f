"""What a painter is given: boxes, chips, sums, lines and notes on a grid; and the slots of two blocks side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from ablate.spec.base import Kinded
from ablate.spec.block import BlockSpec, GainSpec
from ablate.spec.convolution import ConvolutionSpec

Presence = Literal["kept", "removed", "added", "needed", "dispensable", "open", "varied"]
"""Beside another block: in both, only in the other, or only in this one (or another than there). Then the verdicts of a
study on a part of its baseline: needed, not needed, undecided; and that a study will vary it."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of cells with a label in its first row; `was` is what stood there in the other block.

    `slot` names the part of a block that it stands for, here and in the other shapes; empty for none.
    """

    x: int
    y: int
    width: int
    height: int
    kind: Literal["norm", "mixer", "mlp", "gain", "dropout"]
    label: str
    state: Presence
    was: str = ""
    slot: str = ""

    @property
    def middle(self) -> int:
        """The column that the main line goes through."""
        return self.x + self.width // 2


@dataclass(frozen=True, slots=True)
class Chip:
    """A part inside a box, one row high."""

    x: int
    y: int
    width: int
    label: str
    state: Presence
    slot: str = ""


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum, one cell."""

    x: int
    y: int
    state: Presence


@dataclass(frozen=True, slots=True)
class Polyline:
    """A line through cells, bent at right angles; with `arrow` it ends in a head."""

    points: tuple[tuple[int, int], ...]
    state: Presence
    arrow: bool = False
    slot: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A label beside a line; `anchor` says which end of the text is at x."""

    x: int
    y: int
    text: str
    state: Presence
    anchor: Literal["start", "middle", "end"] = "start"
    slot: str = ""


@dataclass(slots=True)
class Drawing:
    """A drawn block. Cells count from the top left.

    Attributes:
        title: Its name, or `NAME, compared with OTHER`.
        legend: State to its text in the legend; empty if there is no legend.
    """

    title: str
    legend: dict[Presence, str]
    boxes: list[Box] = field(default_factory=list)
    chips: list[Chip] = field(default_factory=list)
    sums: list[Sum] = field(default_factory=list)
    lines: list[Polyline] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        columns = [box.x + box.width for box in self.boxes] + [x + 1 for line in self.lines for x, _ in line.points]
        rows = [box.y + box.height for box in self.boxes] + [y + 1 for line in self.lines for _, y in line.points]
        for note in self.notes:
            length = len(note.text)
            columns.append(note.x + {"start": length, "middle": (length + 1) // 2, "end": 1}[note.anchor])
            rows.append(note.y + 1)
        return max(columns), max(rows)

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return {"columns": self.size[0], "rows": self.size[1], **asdict(self)}


Rows = tuple[tuple[tuple[str, str], ...], ...]
"""Rows of (slot, label) inside a box, in the order of the computation."""


@dataclass(frozen=True, slots=True)
class SlotPart:
    """The part in a slot and how it differs from the part of the other block."""

    label: str
    state: Presence
    was: str = ""
    slot: str = ""


class Slots:
    """The slots of a block beside those of another (or of itself)."""

    def __init__(self, old: BlockSpec, new: BlockSpec) -> None:
        self._old, self._new = _labels(old), _labels(new)
        self._rows = {box: (_rows(old)[box], _rows(new)[box]) for box in ("mixer", "mlp")}

    def get(self, slot: str) -> SlotPart | None:
        """The part in a slot; None if the slot is empty in both blocks."""
        part = _beside(self._old.get(slot), self._new.get(slot))
        return None if part is None else replace(part, slot=slot)

    def rows(self, box: str) -> list[list[SlotPart]]:
        """The parts inside the mixer or the MLP, in rows; a replaced part is listed as removed and as added."""
        old, new = ({slot: label for row in rows for slot, label in row} for rows in self._rows[box])
        order: list[list[str]] = [[slot for slot, _ in row] for row in self._rows[box][1]]
        for index, row in enumerate(self._rows[box][0]):
            missing = [slot for slot, _ in row if slot not in new]
            shared = [place for place in order if any(slot in place for slot, _ in row)]
            if shared:
                shared[0].extend(missing)
            elif missing:
                order.insert(_insertion_index(order, self._rows[box][0][index + 1 :]), missing)
        return [
            [replace(part, slot=f"{box}: {slot}") for slot in row for part in _both(old.get(slot), new.get(slot))]
            for row in order
        ]


class JudgedSlots(Slots):
    """The slots of a block with what a study found on its parts.

    Args:
        judged: Other blocks with the verdict on them. A part has that of the first block that lacks or replaces it.
    """

    def __init__(self, block: BlockSpec, judged: Sequence[tuple[BlockSpec, Presence]]) -> None:
        super().__init__(block, block)
        self.found: dict[str, Presence] = {}
        parts = parts_of(block)
        for other, verdict in judged:
            theirs = parts_of(other)
            for slot, label in parts.items():
                if theirs.get(slot) != label:
                    self.found.setdefault(slot, verdict)

    def get(self, slot: str) -> SlotPart | None:
        """The part in a slot; None if the slot is empty."""
        part = super().get(slot)
        return None if part is None else replace(part, state=self.found.get(slot, "kept"))

    def rows(self, box: str) -> list[list[SlotPart]]:
        """The parts inside the mixer or the MLP, in rows."""
        return [
            [SlotPart(label, self.found.get(f"{box}: {slot}", "kept"), slot=f"{box}: {slot}") for slot, label in row]
            for row in self._rows[box][1]
        ]


def parts_of(block: BlockSpec) -> dict[str, str]:
    """Slot to the label of the part in it, also of those inside a box (`mixer: value`).

    Slots that only say how boxes are connected are left out.
    """
    labels = {slot: label for slot, label in _labels(block).items() if not slot.startswith("feed_")}
    return labels | {
        f"{box}: {slot}": label for box, rows in _rows(block).items() for row in rows for slot, label in row
    }


def _insertion_index(order: list[list[str]], after: Rows) -> int:
    """The index before the first row that follows it in the other block too, else the end."""
    known = {slot for row in after for slot, _ in row}
    return next((index for index, row in enumerate(order) if known & set(row)), len(order))


def _beside(old: str | None, new: str | None) -> SlotPart | None:
    if new is None:
        return None if old is None else SlotPart(old, "removed")
    if old is None:
        return SlotPart(new, "added")
    return SlotPart(new, "kept") if old == new else SlotPart(new, "added", old)


def _both(old: str | None, new: str | None) -> list[SlotPart]:
    if old is not None and old == new:
        return [SlotPart(old, "kept")]
    states: tuple[tuple[str | None, Presence], ...] = ((old, "removed"), (new, "added"))
    return [SlotPart(label, state) for label, state in states if label is not None]


_PLACES = {"sandwich": ("pre", "output"), "pre_scaled": ("pre",)}
"""Where norms with these places are drawn; others where their name says."""


def _labels(block: BlockSpec) -> dict[str, str]:
    gains, skips, parallel = block.gains, block.skips, block.arrangement == "parallel"
    labels = {"mixer": block.mixer.kind_name().replace("_", " ")}
    if label := block.residual.label():
        labels["gain_residual"] = label
    subs = ("mixer",) if parallel or not block.mlp.present else ("mixer", "mlp")
    labels |= {
        f"norm_{part}_{place}": norm.label() + (" / √layer" if norm.place == "pre_scaled" else "")
        for part, norm in zip(subs, block.norms, strict=False)
        if norm.present
        for place in _PLACES.get(norm.place, (norm.place,))
    }
    labels |= _branch("mixer", gains.mixer_branch, "β_SA", block.dropout)
    if skips.mixer and not gains.mixer_skip.fixed_at_zero:
        labels["skip_both" if parallel else "skip_mixer"] = _gain(gains.mixer_skip, "α_comb" if parallel else "α_SA")
    if skips.mixer == 2:
        labels["skip_second"] = "again"
    if block.mlp.present:
        labels["mlp"] = "MLP"
        labels |= _branch("mlp", gains.mlp_branch, "β_FF", block.dropout)
        if skips.mlp and not gains.mlp_skip.fixed_at_zero:
            labels["skip_mlp"] = _gain(gains.mlp_skip, "α_FF")
        labels["feed_parallel" if parallel else "feed_sequential"] = ""
    return labels


def _branch(sub_layer: str, gain: GainSpec, symbol: str, dropout: float) -> dict[str, str]:
    labels = {}
    if dropout:
        labels[f"dropout_{sub_layer}"] = f"dropout {dropout:g}"
    if gain != GainSpec():
        labels[f"gain_{sub_layer}"] = _gain(gain, symbol)
    return labels


def _gain(gain: GainSpec, symbol: str) -> str:
    if gain == GainSpec():
        return ""
    depth = "/√depth" if gain.depth_scaling != "none" else ""
    value = f"{gain.init:g}{depth}"
    return f"× {symbol} from {value}, trained" if gain.trainable else f"× {symbol} = {value}"


def _rows(block: BlockSpec) -> dict[str, Rows]:
    settings = (
        ("positions", "" if block.positions is None else _kind(block.positions)),
        ("head width", "" if block.head_width is None else f"d_h = {block.head_width}"),
        ("window", "" if block.window is None else f"window {block.window}"),
    )
    shown = tuple((slot, label) for slot, label in settings if label)
    places = block.convolutions
    mixer = _convolution_rows(("input", places.before_mixer), ("k", places.on_key), ("q, k, v", places.on_qkv))
    mlp = _convolution_rows(("input", places.before_mlp), ("hidden", places.in_mlp))
    return {
        "mixer": ((shown,) if shown else ())
        + mixer
        + block.mixer.parts()
        + _convolution_rows(("output", places.after_mixer)),
        "mlp": mlp + block.mlp.parts() + _convolution_rows(("output", places.after_mlp)) if block.mlp.present else (),
    }


def _convolution_rows(*places: tuple[str, ConvolutionSpec | None]) -> Rows:
    """A row for each convolution of a sub-layer."""
    return tuple(((f"convolution of {name}", f"{name}: {spec.label()}"),) for name, spec in places if spec is not None)


def _kind(spec: Kinded) -> str:
    """A kind and its settings that are not the default."""
    return ", ".join([spec.kind_name(), *(label for row in spec.settings_as_parts() for _, label in row)])
