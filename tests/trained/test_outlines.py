"""Every kind can be planned: outlined without values, and started from the weights of a stage, frozen or not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from families import without_dropout

from ablate.errors import PluginError
from ablate.kinds.mixers.token_mixing import FNetSpec
from ablate.nn.model import FAMILIES, build_model, model_cost, outline
from ablate.spec.model import ModelSpec
from ablate.spec.named import block_names
from ablate.spec.sublayers import MIXERS
from ablate.spec.task import DataShape
from ablate.spec.training import InitFromSpec
from ablate.trained.source import SourceWeights
from ablate.trained.transfer import outline_of, transfer
from ablate.training.members import frozen_counts, part_names

SHAPE = DataShape(vocabulary=11, context=16)
SIZES = {"vocabulary": SHAPE.vocabulary, "context": SHAPE.context}


def model(**changes: Any) -> ModelSpec:
    plain = {"family": "decoder", "depth": 2, "width": 16, "heads": 2, "positions": "none", **changes}
    return ModelSpec.model_validate(plain)


def shapes(module: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def of_mixer(kind: str) -> ModelSpec:
    mixer = MIXERS.members()[kind]
    causal = mixer.causal_form
    return model(family="decoder" if causal else "encoder", block={"mixer": kind, "mlp": "plain", "norm": "layer"})


MODELS = {f"block {name}": lambda name=name: model(**without_dropout(name)) for name in block_names()} | {
    f"mixer {kind}": lambda kind=kind: of_mixer(kind) for kind in MIXERS.members()
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_is_outlined_priced_frozen_and_starts_from_a_stage(name: str) -> None:
    spec = MODELS[name]()
    whole = build_model(spec, **SIZES, seeds=[0])
    outlined = outline(spec, **SIZES)
    assert shapes(outlined) == shapes(whole)
    if not all(parameter.is_meta for parameter in outlined.parameters()):
        with torch.device("meta"):
            FAMILIES[spec.family][0](spec, *SIZES.values(), 0, 1)  # raises what `outline` does not show
    assert all(parameter.is_meta for parameter in outlined.parameters())
    parameters = sum(one.numel() for one in outlined.parameters())
    assert model_cost(spec, **SIZES).parameters == parameters
    assert frozen_counts(outlined, part_names(outlined))[0] == parameters
    stage = SourceWeights("the stage before", dict(outlined.state_dict()), spec)
    made = transfer(spec, SHAPE, stage, InitFromSpec(stage={"training.steps": 1}))
    assert (made.new, made.unused) == ((), ())


def test_a_kind_that_reads_values_while_it_is_built_is_outlined_with_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, build = of_mixer("fnet"), FNetSpec.build

    def curious(self: FNetSpec, context: Any) -> Any:
        made = build(self, context)
        made.first = int(torch.ones(2).nonzero()[0, 0])
        return made

    monkeypatch.setattr(FNetSpec, "build", curious)
    outlined = outline(spec, **SIZES)
    assert shapes(outlined) == shapes(build_model(spec, **SIZES, seeds=[0]))

    def broken(self: FNetSpec, context: Any) -> Any:
        raise KeyError("no")

    monkeypatch.setattr(FNetSpec, "build", broken)
    with pytest.raises(PluginError, match="building the model raised KeyError"):
        outline_of(spec, SHAPE)
