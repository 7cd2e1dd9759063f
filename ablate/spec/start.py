"""`InitFromSpec`: the weights from which a trial starts, in place of random ones."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ablate.spec.base import Spec, content_hash, refusal
from ablate.spec.named import expand_setting


def stage_identity(variant_hash: str, data_fingerprint: str) -> str:
    """The identity of a stage: that of the variant that is trained before another, and of its data."""
    return content_hash({"variant": variant_hash, "data": data_fingerprint})


class InitFromSpec(Spec):
    """The weights of a trained model, and how they are given to this one. A bare text is the `source`.

    A trial is known by the content of its source: a file that moves gives the same trial, one that changes another.
    """

    source: str = ""
    """The key of a trial whose weights the store keeps (`save_weights`), or its first characters; a file of weights
    under our names (safetensors, or what torch loads with `weights_only=True`); the folder of a Hugging Face model; or
    `hub:OWNER/NAME[@REVISION]`."""
    stage: dict[str, Any] | None = None
    """Instead of a source: a stage of training before this one. The values, by spec path, with which this variant is
    trained first, without its own `init_from` and `freeze` unless they set one. Each seed starts from the stage's trial
    of that seed, which is a trial as any other: it is trained once and reused."""
    map: Literal["auto", "exact"] = "auto"
    """`auto`: copies what agrees by meaning, and lists what is new and what has no place; `exact`: refuses a source
    whose tensors have other names or shapes."""
    layers: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """For each layer of the model, the layer of the source that it starts from; unless set, layer i of d starts from
    layer i·s/d of the s that the source has, rounded down."""
    identity: str = ""
    """Checksum of the source's weights, or of the stage's spec and data. It is filled in when the study is planned;
    where it is written, another content is refused."""

    @field_validator("stage", mode="before")
    @classmethod
    def _name_a_block(cls, stage: Any, info: ValidationInfo) -> Any:
        return expand_setting(stage, (info.context or {}).get("folders", ())) if isinstance(stage, dict) else stage

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if bool(self.source) == (self.stage is not None) and not (self.identity and self.stage is None):
            raise refusal(
                ("source",),
                self.source,
                "weights come from a `source` or from a `stage` of this study",
                "Write `init_from: FILE`, or `init_from: {stage: {training.steps: 100}}`.",
            )
        return self

    def canonical(self) -> Any:
        """As any spec; of a source whose identity is known, the identity alone."""
        plain = super().canonical()
        return (
            {name: value for name, value in plain.items() if name not in ("source", "stage")}
            if self.identity
            else plain
        )
