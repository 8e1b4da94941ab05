"""`hwopt docs`: pages of the guide in the terminal, offline."""

import argparse
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from hwopt.cli.flags import Flag
from hwopt.cli.runner import Rendered
from hwopt.cli.value_types import TEXT

DOCS = (
    Flag("topic", "a page of the guide, such as a command or a topic of the physics (default: list all pages)", TEXT),
)


def docs(options: argparse.Namespace) -> Rendered:
    """Return the list of the guide's pages, or one page."""
    from hwopt.output import guide

    if options.topic is None:
        titles = {topic: guide.title(path) for topic, path in guide.topics().items()}
        return Rendered(lambda: {"topics": titles}, lambda: _list(titles, guide.topics()))
    page = guide.text(options.topic)
    document = {"topic": options.topic, "title": guide.title(guide.topics()[options.topic]), "text": page}
    return Rendered(lambda: document, lambda: page)


def _list(titles: Mapping[str, str], paths: Mapping[str, Path]) -> str:
    """Return the list of topics with their titles, with a blank line between folders of pages."""
    width, lines = max(map(len, titles)), ["The guide: hwopt docs TOPIC"]
    for _, section in groupby(titles, key=lambda topic: paths[topic].parent):
        lines += ["", *(f"  {topic:<{width}}  {titles[topic]}" for topic in section)]
    return "\n".join(lines)
