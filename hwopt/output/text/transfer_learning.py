"""Value of pre-training for a fine-tuning run, as a section of an answer."""

from typing import Any

from hwopt.model.training.transfer_learning import Transferred
from hwopt.output.answer import Section, Sentences


def transfer_section(worth: Transferred, title: str) -> Section:
    """Return sentences on the fine-tuning data, its effective amount with pre-training, and the limits of the scaling law.

    **Arguments:** `title` of the pre-training.
    """

    def amount(value: Any) -> str:
        size, unit = (1e12, "T") if float(value) >= 1e12 else (1e9, "B")
        return f"{float(value) / size:,.3g} {unit} tokens"

    effective, most = amount(worth.tokens + worth.transferred_tokens), amount(worth.low_data_tokens)
    times, part = (
        f"{float(worth.multiplier):,.3g}x",
        "a tenth of the data that bring a model of this size within 1 % of its lowest loss",
    )
    holds = f"The transfer law holds up to {most} of fine-tuning data, {part}"
    if float(worth.tokens) > float(worth.low_data_tokens):
        holds = f"Not reliable: the transfer law holds only up to {most} of fine-tuning data, {part}"
    said = (
        f"{title}: {amount(worth.tokens)} of fine-tuning data are worth {effective} of training from scratch ({times}). {holds}. "
        "It was fitted to models of up to 1 B parameters; larger ones are extrapolated (B: billion, T: trillion). The final loss "
        "above is that of training from scratch; the loss after pre-training was not computed."
    )
    return Section("Fine-tuning after pre-training", [Sentences([said], later="  ")])
