"""Output of commands: a screen or one JSON object, a progress bar, and a note on what is kept after an interruption."""

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

from hwopt import escape
from hwopt.cli.flags import Flag
from hwopt.cli.value_types import SWITCH
from hwopt.errors import UserError
from hwopt.units import pretty

JSON = Flag("--json", "print one JSON object on standard output, nothing else there", SWITCH, False)

behind = ""
"""Note on what is kept if the current work is interrupted."""


def say(text: str) -> None:
    """Print lines on standard output, escaped for a terminal, and flush, so that a full disk raises here.

    **Raises:** `UserError` if the output cannot be written; `BrokenPipeError` if its reader has closed it.
    """
    try:
        print(escape.terminal(text), flush=True)
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise UserError(f"cannot write standard output: {failure.strerror or failure}") from None


def signed(command: str, document: dict[str, Any], line: str = "") -> dict[str, Any]:
    """Return an answer with the name of its schema, and the command `line` that produced it."""
    from hwopt.output.schema.identity import VERSION, identity

    return {"schema": identity(command), "schema_version": VERSION, "command": line} | document


def show(options: argparse.Namespace, document: Callable[[], Any], screen: Callable[[], str]) -> None:
    """Print an answer as strict JSON with the name of its schema where requested, else as a text screen."""
    if options.json:
        say(json.dumps(signed(options.command, document(), options.command_line), indent=2, allow_nan=False))
    else:
        say(screen())


@contextlib.contextmanager
def interruptible(words: str) -> Iterator[None]:
    """Append a note on what is kept to the message of an interruption."""
    global behind
    behind = f": {words}"
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted{behind}") from None
    finally:
        behind = ""


def is_watched(options: argparse.Namespace) -> bool:
    """Return whether a progress bar would be seen: on a terminal, and without `--json`."""
    return not options.json and sys.stderr is not None and sys.stderr.isatty()


@contextlib.contextmanager
def bar(options: argparse.Namespace, objective: Any, first: bool = True) -> Iterator[Callable[[Any], None] | None]:
    """Show a progress bar on standard error: variants done, rate, time left, the best objective so far in its unit.

    **Arguments:** `first`: whether this is the first of the processes that share a sweep.

    **Returns:** a function that takes `Progress`; None where no bar is shown.
    """
    if not (first and is_watched(options)):
        yield None
        return
    from tqdm.auto import tqdm

    unit = objective.problem().objective.unit
    with tqdm(desc="sweep: preparing", bar_format="{desc}", mininterval=0.25, leave=False, dynamic_ncols=True) as meter:

        def tell(progress: Any) -> None:
            if meter.total is None:
                meter.total = progress.total
                meter.set_description_str("sweep", refresh=False)
                meter.bar_format = "{desc} {percentage:3.0f}% |{bar:20}| {n:,}/{total:,} variants{postfix}"
            rate = progress.per_second
            pace = f"{rate / 1e6:.2f} M/s" if rate >= 1e6 else f"{rate:,.0f}/s"
            left = math.ceil((progress.total - progress.done) / rate) if rate else math.inf
            best = f"best {pretty(progress.best, unit)}" if math.isfinite(progress.best) else "none feasible yet"
            meter.set_postfix_str(f"{pace}, {pretty(left, 's', 3)} left, {best}", refresh=False)
            meter.update(progress.done - meter.n)

        yield tell
