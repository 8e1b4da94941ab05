"""`hwopt catalog` and `hwopt sources`: catalog entries with their sources, and the references behind a design question."""

import argparse

from hwopt.cli.flags import Flag
from hwopt.cli.question import asked_objective
from hwopt.cli.runner import Rendered
from hwopt.cli.value_types import TEXT

CATALOG = (
    Flag("kind", "chips, links, workloads, stacks, cooling, ...; without it, all kinds", TEXT),
    Flag("name", "an entry, or a file of your own: .toml, of workloads a Hugging Face config.json too", TEXT),
)


def catalog(options: argparse.Namespace) -> Rendered:
    """Return the types of catalog entries, the entries of a type, or one entry."""
    from hwopt import catalog
    from hwopt.output.text import catalog_cards

    if options.kind is None:
        document, text = catalog_cards.kinds()
    elif options.name is None:
        document, text = catalog_cards.entries(options.kind)
    elif catalog.config_file(options.kind, options.name):
        document, text = catalog_cards.shape(options.name)
    else:
        entry = catalog.record(options.kind, options.name)
        if options.kind == "chips" and "unsupported" not in entry.text:
            catalog.chip(options.name)  # reject an entry that no other command would accept
        document, text = catalog_cards.entry(entry)
    return Rendered(lambda: document, lambda: text)


def sources(options: argparse.Namespace) -> Rendered:
    """Return the references of exactly the numbers that a question uses."""
    from hwopt.design.portfolio import portfolio_of

    objective = asked_objective(options)
    problem = portfolio_of(objective) or objective.problem()
    return Rendered(
        lambda: {"question": problem.question, "sources": list(problem.sources)},
        lambda: "\n".join([problem.question, "", *(f"- {text}" for text in problem.sources)]),
    )
