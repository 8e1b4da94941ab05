"""What one replica passes through the model at once."""

from typing import NamedTuple

from hwopt.types import Scalar


class Batch(NamedTuple):
    """What one replica passes through the model at once."""

    sequences: Scalar  # b, that get their next tokens
    queries: Scalar  # q, tokens checked of each: drafted ones and one more
    context: Scalar  # tokens before them
    prompt_tokens: Scalar  # c, of new prompts
    prompts: Scalar  # how many prompts these are
    prompt_context: Scalar  # cached tokens before each of a prompt's new ones
    prompt_length: Scalar  # new tokens of a prompt

    @property
    def rows(self) -> Scalar:
        """Tokens in all: `b q + c`."""
        return self.sequences * self.queries + self.prompt_tokens

    @property
    def sampled(self) -> Scalar:
        """Tokens that the head turns into logits: every checked one, the last one of a prompt."""
        return self.sequences * self.queries + self.prompts
