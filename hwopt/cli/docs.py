"""`hwopt docs`: pages of the guide in the terminal, without a network."""

import argparse

from hwopt.cli.flags import Flag
from hwopt.cli.kinds import TEXT
from hwopt.cli.output import show

DOCS = (Flag("topic", "a page: a command, a theme of the physics, or what the list without a topic names", TEXT),)


def docs(options: argparse.Namespace) -> int:
    """The list of pages, or one."""
    from hwopt.report import guide

    if options.topic is None:
        titles = {topic: guide.title(path) for topic, path in guide.topics().items()}
        width = max(map(len, titles))
        lines = ["The guide: hwopt docs TOPIC", *(f"  {topic:<{width}}  {title}" for topic, title in titles.items())]
        show(options, lambda: {"topics": titles}, lambda: "\n".join(lines))
        return 0
    page = guide.text(options.topic)
    document = {"topic": options.topic, "title": guide.title(guide.topics()[options.topic]), "text": page}
    show(options, lambda: document, lambda: page)
    return 0
