"""A pack of language models as `lm-eval` asks for a model. Needs the extra `evaluate`; import it inside a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.api.model import TemplateLM

from ablate.downstream.harness import Likelihood, Pair, Scored, windows
from ablate.errors import DataError
from ablate.spec.task import Codec

_MOST_WRITTEN = 256
"""Tokens that are written unless a task says another number, as in the other models of `lm-eval`."""


class Adapter(TemplateLM):  # type: ignore[misc]  # the library has no types
    """Answers the requests of `lm-eval` for one member of a pack at a time.

    A request is computed for all members at once and kept, so that the other members find it answered.

    Attributes:
        member: The member that answers.
    """

    def __init__(self, scored: Scored, codec: Codec) -> None:
        super().__init__()
        self._scored = scored
        self._codec = codec
        self._likelihoods: dict[Pair, list[Likelihood]] = {}
        self._texts: dict[tuple[str, str], list[str]] = {}
        self.member = 0

    @property
    def eot_token_id(self) -> int:
        """The end of a document, which stands before a text without a context."""
        return self._codec.end_of_document

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **settings: Any) -> list[int]:
        """The ids of a text; our tokenizers add none."""
        ids: list[int] = self._codec.encode(string).tolist()
        return ids

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **settings: Any
    ) -> list[tuple[float, bool]]:
        pairs = []
        for _, given, scored in requests:
            if len(scored) > self._scored.context:
                raise DataError(
                    "an answer is longer than the context of the model",
                    where="downstream task",
                    expected=f"at most {self._scored.context} tokens",
                    got=str(len(scored)),
                )
            pairs.append(Pair((*given,) or (self.eot_token_id,), (*scored,)))
        return [(likelihood.nats, likelihood.greedy) for likelihood in self._of(pairs)]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """The log-likelihood of each whole text, in nats."""
        cut = [
            windows(self.tok_encode(request.args[0]), self.eot_token_id, self._scored.context) for request in requests
        ]
        likelihoods = iter(self._of([pair for pairs in cut for pair in pairs]))
        return [sum(next(likelihoods).nats for _ in pairs) for pairs in cut]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """What the model writes after each text, greedily, up to the first of its stop texts."""
        return [self._written(*request.args) for request in requests]

    def _of(self, pairs: Sequence[Pair]) -> list[Likelihood]:
        if new := list(dict.fromkeys(pair for pair in pairs if pair not in self._likelihoods)):
            self._likelihoods.update(zip(new, self._scored.likelihoods(new), strict=True))
        return [self._likelihoods[pair][self.member] for pair in pairs]

    def _written(self, context: str, settings: dict[str, Any]) -> str:
        if settings.get("do_sample") and settings.get("temperature", 1.0):
            raise DataError(
                "its answers are drawn at random",
                where="downstream task",
                expected="a task whose answers are greedy (`do_sample: false`)",
                remedy="Set `do_sample: false` in its `generation_kwargs`.",
            )
        key = context, repr(sorted(settings.items()))
        if key not in self._texts:
            until = settings.get("until") or []
            stops = [until] if isinstance(until, str) else [stop for stop in until if stop]
            most = int(settings.get("max_gen_toks") or settings.get("max_new_tokens") or _MOST_WRITTEN)
            given = self.tok_encode(context) or [self.eot_token_id]
            written = self._scored.greedy(
                given, min(most, self._scored.context - 1), lambda ids: self._ends(ids, stops)
            )
            self._texts[key] = [self._cut(ids, stops) for ids in written]
        return self._texts[key][self.member]

    def _ends(self, ids: list[int], stops: Sequence[str]) -> bool:
        return ids[-1] == self.eot_token_id or any(stop in self._codec.decode(ids) for stop in stops)

    def _cut(self, ids: list[int], stops: Sequence[str]) -> str:
        """The text before its end, and before the first stop text."""
        text = self._codec.decode(ids[:-1] if ids[-1:] == [self.eot_token_id] else ids)
        for stop in stops:
            text = text.partition(stop)[0]
        return text
