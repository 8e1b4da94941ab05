"""Process-level concerns of the CLI: one-line errors, exit codes, signals, fast exit, compilation cache."""

import contextlib
import gc
import os
import shlex
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from typing import NoReturn

from hwopt import cleanup, escape, workers
from hwopt.cache_folders import SharedFolder, machine_folder
from hwopt.cli import output
from hwopt.cli.output import say
from hwopt.cli.parser import COMMANDS, DEFAULT_OBJECTIVE, build_parser, parse
from hwopt.errors import UserError

_SIGNALS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "hung up"}
"""Signals that end a command -> the word printed then."""

_RARELY = 20_000, 20, 100
"""Thresholds of Python's cyclic garbage collector.

Traces are a million long-lived objects. Scanning them repeatedly took a twentieth of the default question's CPU
time (1.2 of 25 s). With these thresholds it takes 0.1 s, in as much memory.
"""

_STOPPING = threading.Lock()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments state, and return its exit code."""
    began = time.monotonic()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # Set before JAX loads: loading cached kernels logs pages of processor features. "1" is JAX's own default, inherited from a
    # parent.
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    try:
        options = parse(arguments)
        if options.version:
            from hwopt._version import __version__

            say(f"hwopt {__version__}")
            return 0
        if options.command is None:
            build_parser(DEFAULT_OBJECTIVE, None).print_help()
            return 0
        if set(os.environ.get(workers.VARIABLE, "")) - set("0123456789"):
            raise UserError(
                f"{workers.VARIABLE}={os.environ[workers.VARIABLE]}: must be a number of processes, such as 2"
            )
        options.began, options.command_line = began, shlex.join(["hwopt", *arguments])
        _use_compilation_cache()
        return options.run(options)
    except UserError as error:
        return _fail(2, *_with_page(error, arguments))
    except BrokenPipeError:  # the reader closed the pipe
        return 0
    except KeyboardInterrupt as stop:
        return _fail(128 + signal.SIGINT, str(stop) or "interrupted")
    except Exception as error:
        asked = [f"{name}={os.environ[name]}" for name in _OF_JAX if os.environ.get(name, "cpu") != "cpu"]
        if not asked or (str(error) and not any(words in str(error) for words in ("initialize backend", *_OF_JAX))):
            raise
        return _fail(2, f"JAX cannot start with {' '.join(asked)}: {str(error) or 'no such device'}")


_OF_JAX = ("JAX_PLATFORMS", "JAX_ENABLE_X64")
"""Environment variables that can make JAX fail at start. Only for a missing GPU does JAX raise an error without a message."""


def entry() -> NoReturn:
    """Run the console script `hwopt`; ends the process."""
    gc.set_threshold(*_RARELY)
    _open_standard_files()
    _watch_signals()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # a name that the terminal cannot print is not an error
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore
    try:
        code = main()
    except SystemExit as stop:  # raised by --help
        code = stop.code
    except MemoryError:
        code = _fail(3, "not enough memory")
    except Exception as error:  # internal error: never 1, which means infeasible
        if os.environ.get("HWOPT_TRACEBACK"):
            raise
        exhausted = "RESOURCE_EXHAUSTED" in str(error)
        words = "not enough memory" if exhausted else f"{type(error).__name__}: {error}"
        code = _fail(3, f"{words} (set HWOPT_TRACEBACK=1 for a traceback)")
    _end(int(code or 0))


def _with_page(error: UserError, arguments: Sequence[str]) -> Sequence[str]:
    """Return the lines of an error message, with a reference to the guide's page on the command.

    An error that already refers to help is unchanged, and so is an error of the system (full disk, missing file): no page
    explains it.
    """
    *others, last = error.lines
    command = arguments[0] if arguments else ""
    if command not in COMMANDS or isinstance(error.__context__, OSError) or "hwopt docs" in last or "--help)" in last:
        return error.lines
    return [*others, f"{last} (see hwopt docs {command})"]


def _fail(code: int, *messages: str) -> int:
    """Print messages on standard error and return the exit code. Each is one line; very long ones lose their middle."""
    cleanup.pause()
    for message in messages:
        line = escape.sentence(message)
        line = line if len(line) <= 600 else f"{line[:300]} ... {line[-300:]}"
        with contextlib.suppress(OSError, AttributeError):  # standard error is closed
            print(f"hwopt: {line}", file=sys.stderr, flush=True)
    return code


def _watch_signals() -> None:
    """Install handlers that end the process immediately on a signal: cleanup, one line, and the exit code that shells expect.

    They raise no exception, because imports and destructors would swallow it. They wait for nothing, because a compilation may
    take long. A store is consistent at every moment.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for name in _SIGNALS.keys() & signal.Signals.__members__.keys():
        if signal.getsignal(number := signal.Signals[name]) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, lambda number, frame: _stop(number))
    with contextlib.suppress(ValueError, OSError, RuntimeError):  # else the main thread handles the signal later
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        threading.Thread(target=lambda: _stop(os.read(reading, 1)[0]), daemon=True).start()


def _stop(number: int) -> NoReturn:
    if _STOPPING.acquire(blocking=False):
        cleanup.remove_all()
        line = "\n" if os.isatty(2) else ""  # move below a progress bar
        words = f"{line}hwopt: {_SIGNALS[signal.Signals(number).name]}{escape.line(output.behind)}\n"
        with contextlib.suppress(OSError):
            os.write(2, words.encode())
        os._exit(128 + number)
    while True:
        time.sleep(1.0)  # another thread ends the process


def _open_standard_files() -> None:
    """Open closed standard streams on the null device.

    Otherwise the file of a store would get their descriptors, and receive what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _end(code: int) -> NoReturn:
    """End the process after flushing its output, without the interpreter's shutdown.

    The shutdown would write again to a failed output, and would wait for compiler threads, which never end after memory ran
    out.
    """
    cleanup.pause()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    jax = sys.modules.get("jax")
    if jax is not None and jax.distributed.is_initialized():
        sys.exit(code)  # processes that share a sweep disconnect in order
    os._exit(code)


def _use_compilation_cache() -> None:
    """Cache compiled kernels in the user's cache folder, if there is one, so that later runs start faster.

    A folder that other users can write to is not used; one line on standard error says so. Answers do not depend on the cache.
    """
    import jax

    try:
        folder = machine_folder()
    except SharedFolder as error:
        _fail(0, str(error))
        return
    except (OSError, RuntimeError):  # RuntimeError: the user has no home folder
        return
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")  # it recompiles instead
    if os.access(folder, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
