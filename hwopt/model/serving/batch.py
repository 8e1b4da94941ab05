"""Batch of a forward pass of one replica in serving."""

from typing import NamedTuple

from hwopt.types import Scalar


class Batch(NamedTuple):
    """Batch that one replica processes in a single forward pass: decoding sequences and prompts."""

    sequences: Scalar  # b, decoding sequences
    queries: Scalar  # q, tokens verified per sequence: drafted ones and one more
    context: Scalar  # tokens before them
    prompt_tokens: Scalar  # c, total new tokens of all prompts in the pass
    prompts: Scalar  # number of prompts
    prompt_context: Scalar  # cached tokens before a prompt's new tokens
    prompt_length: Scalar  # new tokens of a prompt

    @property
    def rows(self) -> Scalar:
        """Total tokens of the pass: `b q + c`."""
        return self.sequences * self.queries + self.prompt_tokens

    @property
    def sampled(self) -> Scalar:
        """Tokens for which the head computes logits: every verified token, and the last one of each prompt."""
        return self.sequences * self.queries + self.prompts
