"""The process around a command: errors of one line, exit codes, the cache of compiled kernels."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import platform
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hwopt.cli.parser import DEFAULT_OBJECTIVE, build_parser, objective_of
from hwopt.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # Before JAX loads: cached kernels log pages of processor features.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        options = build_parser(*objective_of(arguments)).parse_args(arguments)
        if options.version:
            from hwopt import __version__

            print(f"hwopt {__version__}")
            return 0
        if options.command is None:
            build_parser(DEFAULT_OBJECTIVE, None).print_help()
            return 0
        options.command_line = shlex.join(["hwopt", *arguments])
        _use_compilation_cache()
        code = options.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()  # so that a full disk or a reader that has left is met here
        return code
    except UserError as error:
        print(f"hwopt: {_shown(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader has left; so do we
        return 0
    except KeyboardInterrupt as stop:
        print(f"hwopt: {str(stop) or 'interrupted'}", file=sys.stderr)
        return 130


def entry() -> NoReturn:
    """The console script."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot print is no reason to fail
    try:
        code = main()
    except Exception as error:  # a fault of ours or of the machine: never 1, which means "no feasible answer"
        if os.environ.get("HWOPT_TRACEBACK"):
            raise
        name = type(error).__name__
        print(_shown(f"hwopt: {name}: {error} (HWOPT_TRACEBACK=1 shows where)"), file=sys.stderr)
        code = 3
    sys.exit(code)


def _shown(message: str, most: int = 600) -> str:
    """A message fit for one line of a terminal: no control characters, the middle of endless names left out."""
    line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(message.split()))
    return line if len(line) <= most else f"{line[: most // 2]} ... {line[-most // 2 :]}"


def _use_compilation_cache() -> None:
    """Keep compiled kernels in the user's cache folder, so that a second run starts at once; without one, do without.

    The folder is named after processor and JAX version: kernels of one do not run on another.
    """
    import jax

    processor = platform.machine()
    with contextlib.suppress(OSError):
        flags = [
            line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("flags", "Features"))
        ]
        processor += flags[0] if flags else ""
    machine = hashlib.sha256(processor.encode()).hexdigest()[:12]
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = base / "hwopt" / f"jax-{jax.__version__}-{machine}"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        return
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")  # it compiles again
    if os.access(folder, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
