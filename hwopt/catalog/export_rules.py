"""Export control rules: dated catalog entries with the thresholds that a chip must stay below."""

from pathlib import Path

from hwopt.catalog.load import supported
from hwopt.hardware.export_rule import FIGURES, PARAGRAPHS, ExportRule, Threshold


def export_rule(name: str | Path) -> ExportRule:
    """Return an export control rule of the catalog, or of a user's own `.toml`.

    **Arguments:** `name` of an entry of `export_rules`, such as `october-2023`, or a path.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    entry = supported("export_rules", name)
    paragraphs = {}
    for paragraph in PARAGRAPHS:
        stated = {figure: entry.quantities.get(f"{figure}.{paragraph}") for figure in FIGURES}
        found = {figure: Threshold(each.si, f"{each.value:g}") for figure, each in stated.items() if each is not None}
        if found:
            paragraphs[paragraph] = found
    if not paragraphs:
        entry.refuse(
            f"it states no threshold: add a table [{'], ['.join(FIGURES)}] with entries such as '{PARAGRAPHS[0]}'"
        )
    return ExportRule(entry.slug, paragraphs)
