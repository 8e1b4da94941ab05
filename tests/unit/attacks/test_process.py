"""The process around a command: signals, a full or closed output, a home that is none, memory that runs out."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import hwopt
from hwopt import cleanup
from hwopt.cli import app
from hwopt.errors import UserError
from hwopt.output.html import files
from hwopt.sweeps.store_lock import exclusive
from tests.rotation import rotated

SWEEP = [
    "sweep", "train_time", "--samples", "8e6", "--sampling", "plain", "--no-figures", "--out", "store", "--report", "page.html",
]  # fmt: skip


@pytest.fixture
def started(tmp_path):
    """Starts a command in an empty folder; what is still running at the end is killed."""
    processes = []

    def start(*arguments: str, heard: bool = True, **more) -> subprocess.Popen:
        environment = os.environ | {"PYTHONPATH": str(Path(hwopt.__file__).parents[1])} | more.pop("env", {})
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path} | more
        # Under `nohup`, and in the background of a shell's script, a process would be born deaf to these.
        wanted = signal.SIG_DFL if heard else signal.SIG_IGN
        own = {number: signal.signal(number, wanted) for number in (signal.SIGHUP, signal.SIGINT)}
        processes.append(subprocess.Popen([sys.executable, "-m", "hwopt.cli", *arguments], env=environment, **more))
        for number, handler in own.items():
            signal.signal(number, handler)
        return processes[-1]

    yield start
    for each in processes:
        if each.poll() is None:
            each.kill()
        each.communicate()


def hidden(folder: Path) -> list[Path]:
    """What a command may leave for a moment: locks, stores and pages that are not finished."""
    return [path for path in folder.rglob("*") if path.name.startswith(".") or path.suffix == ".partial"]


def until(condition, process, seconds: float = 120.0) -> None:
    """Wait until something is so, while the process runs."""
    end = time.monotonic() + seconds
    while not condition() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def hears(process, number: int) -> bool:
    """Whether a process has a handler of a signal: a loaded machine takes its time to start one."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return bool(int(status.split("SigCgt:")[1].split()[0], 16) >> (number - 1) & 1)


@pytest.mark.parametrize(
    ("number", "word", "moment"),
    [
        pytest.param(signal.SIGTERM, "terminated", "at once", marks=pytest.mark.search),
        pytest.param(signal.SIGINT, "interrupted", "at once", marks=pytest.mark.search),
        pytest.param(signal.SIGHUP, "hung up", "at once", marks=pytest.mark.search),
        (signal.SIGTERM, "terminated", "the lock is there"),
        pytest.param(signal.SIGTERM, "terminated", "a block is done", marks=pytest.mark.search),
    ],
)
def test_a_signal_ends_a_sweep_at_once_with_one_line_and_without_leftovers(number, word, moment, started, tmp_path):
    sweep = started(*SWEEP)
    if moment == "at once":
        until(lambda: hears(sweep, signal.SIGTERM) and hears(sweep, signal.SIGHUP), sweep)
        time.sleep(0.5)
    elif moment == "the lock is there":
        until((tmp_path / ".store.lock").exists, sweep)
    else:
        until((tmp_path / "store" / "blocks" / "done" / "c" / "0").exists, sweep)
    begun = time.monotonic()
    sweep.send_signal(number)
    out, err = sweep.communicate(timeout=60)
    assert time.monotonic() - begun < 5.0  # nothing is waited for, no compiler either
    assert sweep.returncode == 128 + number and out == ""
    assert err.startswith(f"hwopt: {word}") and err.count("\n") == 1, err
    if moment == "a block is done":
        assert "finished blocks are saved; the same command resumes" in err
    assert not hidden(tmp_path)


@pytest.mark.parametrize(("module", "name"), [(os, "open"), (fcntl, "flock"), (os, "fstat")])
def test_a_lock_is_not_left_wherever_the_sweep_is_stopped(module, name, tmp_path, monkeypatch):
    """Ended just after each step of taking it, before the program knows that the step is done."""
    real = getattr(module, name)

    def stopped(*arguments):
        real(*arguments)
        monkeypatch.setattr(module, name, real)
        cleanup.remove_all()
        assert not hidden(tmp_path)
        raise KeyboardInterrupt

    monkeypatch.setattr(cleanup, "_ENDING", threading.Event())
    monkeypatch.setattr(module, name, stopped)
    with pytest.raises(KeyboardInterrupt), exclusive(tmp_path / "store"):
        pass


def test_a_lock_of_another_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(cleanup, "_ENDING", threading.Event())
    with exclusive(tmp_path / "store"):
        path = tmp_path / ".store.lock"
        with pytest.raises(UserError, match="another process is writing"), exclusive(tmp_path / "store"):
            pass
        assert path.exists()
    assert not path.exists()


def test_a_signal_that_is_not_to_be_heard_is_not(started):
    """As `nohup` and a shell's background do it."""
    quiet = started("catalog", "chips", heard=False)
    for _ in range(5):
        time.sleep(0.1)
        quiet.send_signal(signal.SIGINT)
    out, err = quiet.communicate(timeout=60)
    assert quiet.returncode == 0 and err == "" and "h100-sxm" in out


def test_what_a_killed_process_left_is_swept_up_by_the_next(tmp_path):
    old, new = tmp_path / ".page.html.123.partial", tmp_path / ".page.html.124.partial"
    for each in (old, new):
        each.write_text("half")
    os.utime(old, (0, 0))
    path = files.writable("--report", str(tmp_path / "page.html"))
    files.write(path, "whole")
    assert not old.exists() and new.exists()  # the other may be being written
    assert path.read_text() == "whole" and len(list(tmp_path.iterdir())) == 2


def test_leftovers_go_however_their_owner_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(cleanup, "_ENDING", threading.Event())
    paths = [tmp_path / name for name in "abc"]
    with pytest.raises(ZeroDivisionError), cleanup.removed_on_exit(paths[0].unlink):
        paths[0].touch()
        raise ZeroDivisionError
    with cleanup.removed_on_exit(paths[1].unlink), cleanup.removed_on_exit(paths[2].unlink):
        paths[1].touch()
        cleanup.remove_all()  # what a signal does; the third was never made
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["estimate", "--help"],
        ["--version"],
        *(
            pytest.param(each, marks=pytest.mark.search)
            for each in (["catalog"], ["catalog", "--json"], ["catalog", "chips"])
        ),
    ],
)
def test_an_output_that_is_full_is_one_line(arguments, started):
    with Path("/dev/full").open("w") as full:
        done = started(*arguments, stdout=full)
        _, err = done.communicate(timeout=60)
    assert done.returncode == 2 and err == "hwopt: cannot write standard output: No space left on device\n"


def test_an_output_that_is_full_twice_is_silent(started):
    with Path("/dev/full").open("w") as full:
        done = started("nothing", stdout=full, stderr=full)
        done.communicate(timeout=60)
    assert done.returncode == 2


def test_what_is_opened_first_gets_no_number_of_a_standard_file(tmp_path):
    """With all three closed. Exit code: the number."""
    script = "import os, sys; from hwopt.cli import app; app._open_standard_files(); "
    script += "os._exit(os.open(os.devnull, os.O_WRONLY))"
    environment = os.environ | {"PYTHONPATH": str(Path(hwopt.__file__).parents[1])}
    line = f"{sys.executable} -c '{script}' <&- >&- 2>&-"
    assert subprocess.run(line, shell=True, cwd=tmp_path, env=environment, timeout=60, check=False).returncode == 3


@pytest.mark.parametrize(
    "closed", [*rotated([">&-", "<&-", "2>&-"], 3), pytest.param("<&- >&- 2>&-", marks=pytest.mark.search)]
)
def test_standard_files_may_be_closed(closed, tmp_path):
    """A store's file must not get their numbers: words meant for people would end in it."""
    stores = closed == "<&- >&- 2>&-"
    command = "sweep --samples 64 --out store --no-figures" if stores else "catalog"
    environment = os.environ | {"PYTHONPATH": str(Path(hwopt.__file__).parents[1])}
    done = subprocess.run(
        f"{sys.executable} -m hwopt.cli {command} {closed}",
        shell=True, cwd=tmp_path, env=environment, timeout=120, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == int(stores) and done.stderr == ""
    assert not hidden(tmp_path)
    for path in tmp_path.rglob("zarr.json"):
        json.loads(path.read_text())


@pytest.mark.parametrize(
    "env", rotated([{"HOME": "/dev/null"}, {"HOME": "", "TERM": "dumb"}, {"XDG_CACHE_HOME": "/proc", "LC_ALL": "C"}], 3)
)
def test_a_home_and_a_terminal_that_are_none(env, started):
    done = started("catalog", "chips", "h100-sxm", env=env)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 0 and err == "" and "NVIDIA" in out


@pytest.mark.parametrize(
    "failure",
    [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes."), ValueError("x\ny")],
)
def test_a_fault_is_one_line_and_exit_3(failure, monkeypatch, capsys):
    def fails():
        raise failure

    codes = []
    monkeypatch.setattr(app, "main", fails)
    monkeypatch.setattr(app, "_end", codes.append)
    for name in ("_watch_signals", "_open_standard_files"):
        monkeypatch.setattr(app, name, lambda: None)
    app.entry()
    err = capsys.readouterr().err
    assert codes == [3] and err.count("\n") == 1
    assert ("not enough memory" in err) == (not isinstance(failure, ValueError))


def test_the_end_waits_for_no_thread(tmp_path):
    """Under `ulimit -v` an answer was printed, and the process waited for threads of the compiler for ever."""
    script = "import sys, threading, time, hwopt.cli; threading.Thread(target=time.sleep, args=(600,)).start(); "
    script += "sys.argv = ['hwopt', '--version']; hwopt.cli.entry()"
    environment = os.environ | {"PYTHONPATH": str(Path(hwopt.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, timeout=60, capture_output=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith(b"hwopt ") and done.stderr == b""
