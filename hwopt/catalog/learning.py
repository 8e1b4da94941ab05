"""Loss laws from the catalogue."""

from __future__ import annotations

from pathlib import Path

from hwopt.catalog.load import leaf, supported
from hwopt.errors import UserError
from hwopt.workload.learning import LossLaw


def loss_law(name: str | Path = "chinchilla-epoch") -> LossLaw:
    """A published law of the loss, with a law of the critical batch.

    **Arguments:** `name` of an entry (`chinchilla-epoch`, `chinchilla-published`), or the path of a `.toml` of the same
    form.

    **Raises:** `UserError` for an unknown name, a bad file, or exponents that cannot be.
    """
    held = supported("laws", name)
    values = {field: held.si(field) for field in LossLaw.__dataclass_fields__}
    if values["critical_token_exponent"] >= 1.0:
        raise UserError(f"law '{held.slug}': 'critical_token_exponent' must lie below 1: more tokens take more steps")
    if values["moe_exponent"] > 1.0:
        raise UserError(f"law '{held.slug}': 'moe_exponent' = {values['moe_exponent']:g} must not exceed 1")
    return LossLaw(**{field: leaf(value) for field, value in values.items()})
