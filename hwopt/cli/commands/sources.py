"""`hwopt catalog` and `hwopt sources`: catalog entries with their sources, and the references behind a design question."""

import argparse

from hwopt.cli.flags import Flag
from hwopt.cli.question import asked_objective
from hwopt.cli.runner import Rendered
from hwopt.cli.value_types import TEXT

CATALOG = (
    Flag("kind", "chips, links, workloads, stacks, cooling, ..., or evidence (default: list all types)", TEXT),
    Flag(
        "name",
        "an entry, or your own file: .toml; for workloads also a Hugging Face config.json; a feature of evidence",
        TEXT,
    ),
)


_WORDS = (
    "Each reference supports at least one input of this question; it may cover other chips, too. `hwopt catalog TYPE NAME` shows "
    "the inputs of an entry, each with its source, range and note.",
    "recalled: written down from memory of the publication, not checked against it.",
    "hwopt: an assumption, estimate or calculation of this project; the range or the note of the input states it.",
    "cell: the runs of one source, model and accelerator.",
)
"""Meaning of the list of references and of the words in it, printed below it."""


def catalog(options: argparse.Namespace) -> Rendered:
    """Return the types of catalog entries, the entries of a type, one entry, or the measured evidence behind plans."""
    from hwopt import catalog
    from hwopt.output.text import catalog_cards

    if options.kind == "evidence":
        from hwopt.output.text.evidence import evidence_page

        document, text = evidence_page(options.name)
    elif options.kind is None:
        document, text = catalog_cards.kinds()
    elif options.name is None:
        document, text = catalog_cards.entries(options.kind)
    elif catalog.config_file(options.kind, options.name):
        document, text = catalog_cards.shape(options.name)
    else:
        entry = catalog.record(options.kind, options.name)
        if options.kind == "chips" and "unsupported" not in entry.text:
            catalog.chip(options.name)  # reject an entry that no other command would accept
        document, text = catalog_cards.entry(entry, options.name)
    return Rendered(lambda: document, lambda: text)


def sources(options: argparse.Namespace) -> Rendered:
    """Return the references of exactly the numbers that a question uses."""
    from hwopt.design.portfolio import portfolio_of
    from hwopt.output.text.layout import wrapped

    objective = asked_objective(options)
    problem = portfolio_of(objective) or objective.problem()
    return Rendered(
        lambda: {"question": problem.question, "sources": list(problem.sources)},
        lambda: "\n".join(
            [
                problem.question,
                "",
                *(f"- {text}" for text in problem.sources),
                "",
                *(wrapped(each, "") for each in _WORDS),
            ]
        ),
    )
