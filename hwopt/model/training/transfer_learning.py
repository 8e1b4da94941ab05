"""Transfer learning: the amount of fine-tuning data that pre-training on another distribution replaces."""

import equinox as eqx
import jax.numpy as jnp

from hwopt.model.report import output
from hwopt.model.training import learning
from hwopt.types import Scalar
from hwopt.workload.learning import LossLaw
from hwopt.workload.training import TrainingRun
from hwopt.workload.transfer import Transfer
from hwopt.workload.transformer import active_parameters, total_parameters

SATURATED = 0.99
"""Ratio of the loss with unlimited data to the loss with given data, above which a model counts as having enough data."""

LOW_DATA = 0.1
"""Fraction of `saturating_tokens` up to which the transfer law was fitted.

**Source:** Hernandez et al., arXiv 2102.01293, 1.1 and appendix A.
"""


class Transferred(eqx.Module):
    """Data of a fine-tuning run and the equivalent data that pre-training adds."""

    tokens: Scalar = output("token", "different tokens of the new kind that the run has")
    transferred_tokens: Scalar = output("token", "tokens of the new kind that pre-training is worth besides")
    multiplier: Scalar = output("", "data in effect over data at hand")
    low_data_tokens: Scalar = output("token", "tokens up to which the law of transfer holds, by the run's loss law")


def transferred_tokens(law: Transfer, parameters: Scalar, tokens: Scalar) -> Scalar:
    """Return the fine-tuning tokens that pre-training replaces: `k (c D)^alpha N^beta / c`, with c characters a token.

    D are the fine-tuning tokens and N the parameters. The law was fitted to transfer from text to Python, with transformers of
    up to about 1e9 parameters. It counts parameters without embeddings; here N are all parameters of a dense model of equal
    loss.

    **Source:** Hernandez et al., Scaling Laws for Transfer, arXiv 2102.01293, equation 1.1.
    """
    characters = law.characters_per_token * tokens
    worth = law.transfer_coefficient * characters**law.data_exponent * parameters**law.size_exponent
    return worth / law.characters_per_token


def saturating_tokens(law: LossLaw, parameters: Scalar) -> Scalar:
    """Return the tokens D at which a model trained from scratch is within 1 % of its lowest loss: `L(inf) = 0.99 L(D)`."""
    excess = learning.loss_floor(law, parameters) * (1.0 / SATURATED - 1.0)
    return (law.token_coefficient / excess) ** (1.0 / law.token_exponent)


def transferred(run: TrainingRun, law: Transfer) -> Transferred:
    """Return the equivalent data that pre-training adds to a run.

    The run's data are its unique tokens, or the tokens that it processes if these are fewer.
    """
    tokens = jnp.where(run.tokens < run.unique_tokens, run.tokens, run.unique_tokens)
    size = learning.dense_equivalent_parameters(run.law, active_parameters(run.model), total_parameters(run.model))
    added = transferred_tokens(law, size, tokens)
    return Transferred(tokens, added, 1.0 + added / tokens, LOW_DATA * saturating_tokens(run.law, size))
