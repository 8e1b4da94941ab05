"""Memory formats of a training run, for runs that state them."""

import equinox as eqx

from hwopt.quantity import quantity, ratio, switch
from hwopt.types import Scalar


class MemoryFormats(eqx.Module):
    """Formats of a run's memory, beyond those of its weights, master copy and moments.

    A number that is not stated is None. It is absent from the model's trace, and the software stack decides.
    """

    frozen_bytes: Scalar | None = quantity("B", "stored weight of a frozen linear layer; adapters are trained")
    adapted_mlp: Scalar | None = switch("1: adapters also in MLPs and experts, 0: only in attention")
    kept_bytes: Scalar | None = quantity("B", "activation element that is kept for the backward pass")
    chunk_tokens: Scalar | None = quantity("token", "in a chunk of the loss: only their logits exist at once")
    layers_gathered: Scalar | None = ratio("layers whose sharded weights are whole at once (FSDP2)")
    table_moment_bytes: Scalar | None = quantity("B", "both moments of an embedding, where they are wider than others")
    gradient_bytes: Scalar | None = quantity("B", "stored gradient of a weight")
    gradients_kept: Scalar | None = ratio("share of the gradients that stays on the chip until the update")
    gradients_offloaded: Scalar | None = switch("1: gradients that leave the chip are stored in the memory pool")
    gradients_unreduced: Scalar | None = switch(
        "1: gradients are whole until the last micro-batch, in the reduction's format"
    )
    reserve_bytes: Scalar | None = quantity("B", "context, communication buffers and fragmentation")
