"""Value of pre-training for a fine-tuning run, as lines of a screen and as JSON."""

from typing import Any

from hwopt.model.report import outputs
from hwopt.model.training.transfer_learning import Transferred
from hwopt.output.text.layout import heading, wrapped
from hwopt.output.text.parts import number


def transfer_document(worth: Transferred | None) -> dict[str, Any]:
    """Return the value of pre-training for JSON; empty where not requested."""
    if worth is None:
        return {}
    return {"transfer": {name: number(getattr(worth, name)) for name in outputs(Transferred)}}


def transfer_lines(worth: Transferred | None, title: str) -> list[str]:
    """Return lines on the fine-tuning data, its effective amount with pre-training, and the limits of the scaling law."""
    if worth is None:
        return []

    def amount(value: Any) -> str:
        size, unit = (1e12, "T") if float(value) >= 1e12 else (1e9, "G")
        return f"{float(value) / size:,.3g} {unit} tokens"

    effective, most = amount(worth.tokens + worth.transferred_tokens), amount(worth.low_data_tokens)
    times, part = f"{float(worth.multiplier):,.3g} times as many", "a tenth of what a model of this size can use"
    holds = f"The law holds up to {most}, {part}"
    if float(worth.tokens) > float(worth.low_data_tokens):
        holds = f"Not to be relied on: beyond {most}, {part}, the law fails"
    said = (
        f"{title}: {amount(worth.tokens)} of the new data do the work of {effective} from scratch, {times}. {holds}. It was "
        "fitted to models of up to about 1e9 parameters: larger ones are extrapolated. The loss above is that from scratch."
    )
    return [*heading("Pre-training"), wrapped(said, "  ")]
