"""The loss after a run, whose batch wastes some of the tokens."""

from __future__ import annotations

import math

from tests.reference.plain.thermal import bisect


def loss_after(law, size: float, useful: float) -> float:
    return (
        law.irreducible_loss
        + law.parameter_coefficient / size**law.parameter_exponent
        + law.token_coefficient / useful**law.token_exponent
    )


def processed(law, size: float, useful: float, batch: float) -> float:
    """Tokens that a batch size needs for what `useful` tokens teach in tiny batches."""
    critical = law.critical_batch_tokens * (useful / law.critical_reference_tokens) ** law.critical_token_exponent
    critical /= loss_after(law, size, useful) ** law.critical_loss_exponent
    return useful + useful * batch / critical


def fresh(law, tokens: float, unique: float) -> float:
    """Tokens seen once that these are worth, some of them seen again."""
    again = tokens / unique - 1.0
    if again <= 0.0:
        return tokens
    return unique + unique * law.repetition_epochs * (1.0 - math.exp(-again / law.repetition_epochs))


def loss(law, active: float, total: float, tokens: float, batch: float) -> float:
    """Loss by bisection for the useful tokens; at least a twentieth of the tokens counts as useful."""
    size = math.exp((1.0 - law.moe_exponent) * math.log(active) + law.moe_exponent * math.log(total))
    share = 0.05
    if processed(law, size, share * tokens, batch) < tokens:
        share = math.exp(
            bisect(lambda x: processed(law, size, math.exp(x) * tokens, batch) - tokens, math.log(0.05), 0.0)
        )
    return loss_after(law, size, share * tokens)
