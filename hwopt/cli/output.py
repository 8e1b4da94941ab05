"""Output of commands: a screen or one JSON object, a progress bar, and a note on what is kept after an interruption."""

import argparse
import contextlib
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from hwopt import escape, progress
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
        answer = _dated(options) | document()
        say(json.dumps(signed(options.command, answer, options.command_line), indent=2, allow_nan=False))
    else:
        say(screen())


def _dated(options: argparse.Namespace) -> dict[str, str]:
    """Return the month of a question as JSON; nothing for commands without one, and where choices state several."""
    if "date" not in options or "date" in (getattr(options, "choices", None) or {}):
        return {}
    from hwopt.catalog.dates import question_date

    return {"date": question_date(options.date)}


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


_PATIENCE_S = 3.0
"""Time after which a terminal shows that a command is working."""


@contextlib.contextmanager
def heartbeat(options: argparse.Namespace) -> Iterator[None]:
    """Show on standard error that a command is working: its name, the stage where it is known, and the time since its start.

    The line appears after a few seconds and only on a terminal. Where there is a progress bar, its time is updated instead.
    """
    if not is_watched(options):
        yield
        return
    done = threading.Event()

    def beat() -> None:
        write = lambda text: print(f"\r{text}\x1b[K", file=sys.stderr, end="", flush=True)
        while not done.wait(1.0):
            tqdm, waited = sys.modules.get("tqdm"), time.monotonic() - options.began
            bars = list(getattr(tqdm.tqdm, "_instances", ())) if tqdm else []
            stage = f"{progress.stage}, " if progress.stage else ""
            write(f"{options.command}: {stage}{waited:.0f} s" if waited >= _PATIENCE_S and not bars else "")
            for each in bars:
                each.refresh()
        write("")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def bar(options: argparse.Namespace, objective: Any, first: bool = True) -> Iterator[Callable[[Any], None] | None]:
    """Show a progress bar on standard error while the `with` block runs.

    It shows the evaluated designs, their rate, the time left, and the best objective so far.

    **Arguments:**

    - `options`: the parsed command line. `--json`, or an output that is not a terminal, turns the bar off.
    - `objective`: the design problem, for the unit of its objective.
    - `first`: whether this is the first of several processes that share a sweep. The others show no bar.

    **Returns:** a context manager. It yields a function that updates the bar from a `Progress`; None where no bar is shown.
    """
    if not (first and is_watched(options)):
        yield None
        return
    from tqdm.auto import tqdm

    unit = objective.problem().objective.unit
    with tqdm(desc="sweep: preparing", bar_format="{desc}", mininterval=0.25, leave=False, dynamic_ncols=True) as meter:

        def tell(now: Any) -> None:
            if meter.total is None:
                meter.total = now.total
                meter.set_description_str("sweep", refresh=False)
                meter.bar_format = "{desc} {percentage:3.0f}% |{bar:20}| {n:,}/{total:,} variants{postfix}"
            rate = now.per_second
            pace = f"{rate / 1e6:.2f} M/s" if rate >= 1e6 else f"{rate:,.0f}/s"
            left = math.ceil((now.total - now.done) / rate) if rate else math.inf
            best = f"best {pretty(now.best, unit)}" if math.isfinite(now.best) else "none feasible yet"
            meter.set_postfix_str(f"{pace}, {pretty(left, 's', 3)} left, {best}", refresh=False)
            meter.update(now.done - meter.n)

        yield tell
