"""Work in several processes: the same results with helpers and without, and whatever becomes of these."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from hwopt import workers

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, eq=False)
class Factor:
    """What all parts take."""

    by: float


class Unwritable(Factor):
    def __reduce__(self):
        raise TypeError("holds what another process cannot have")


def times(kept: Factor, number: float) -> tuple[float, int]:
    """A product, and the process that it was made in."""
    return kept.by * number, os.getpid()


def root(kept: Factor, number: float) -> float:
    if number < 0:
        raise ValueError(f"{number} has no root")
    return kept.by * number**0.5


def at_once(kept: Factor, seconds: float) -> None:
    time.sleep(seconds)


@pytest.fixture
def helpers(monkeypatch):
    """Two processes with one helper that is awake."""
    monkeypatch.setenv(workers.VARIABLE, "2")
    pool = workers._Helpers()
    monkeypatch.setattr(workers, "_HELPERS", pool)
    awake(pool)
    yield pool
    pool.close()


def awake(pool) -> None:
    pool.wake([])
    deadline = time.monotonic() + 60
    while not all(each.ready for each in pool._helpers):
        assert time.monotonic() < deadline, "the helper does not wake"
        time.sleep(0.01)


PARTS = [(2.0,), (3.0,)]


def results(parts=PARTS, kept=None):
    return workers.map_chunks(times, kept or Factor(10.0), parts)


def test_parts_are_done_in_several_processes(helpers):
    (a, here), (b, there) = results()
    assert (a, b) == (20.0, 30.0)
    assert here == os.getpid() != there
    kept = Factor(7.0)
    assert [results(kept=kept)[1] for _ in range(3)] == [(21.0, there)] * 3  # sent once, kept there


def test_more_parts_than_processes(helpers):
    done = results([(float(i),) for i in range(5)])
    assert [value for value, _ in done] == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert len({where for _, where in done}) == 2


def test_no_parts_are_no_work(helpers):
    assert results([]) == []


def test_without_helpers_all_is_done_here(monkeypatch):
    monkeypatch.setattr(workers, "_HELPERS", workers._Helpers())
    assert results() == [(20.0, os.getpid()), (30.0, os.getpid())]


def test_a_helper_forgets_what_was_long_not_asked_for(helpers, monkeypatch):
    monkeypatch.setattr(workers, "KEPT", 3)
    many = [Factor(float(i)) for i in range(6)]
    for _ in range(2):
        for each in many:
            assert results(kept=each)[1][0] == 3.0 * each.by
    assert len(helpers._helpers[0]._kept) == 3


def test_what_cannot_be_sent_is_done_here(helpers):
    kept = Unwritable(10.0)
    assert results(kept=kept) == [(20.0, os.getpid()), (30.0, os.getpid())]
    assert results()[1][1] != os.getpid()


@pytest.mark.parametrize("parts", [[(-1.0,), (4.0,)], [(4.0,), (-1.0,)]])
def test_an_error_is_raised_here_wherever_it_came_up(helpers, parts):
    with pytest.raises(ValueError, match=r"-1\.0 has no root"):
        workers.map_chunks(root, Factor(1.0), parts)
    awake(helpers)
    assert results()[1][1] != os.getpid()


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_a_helper_that_is_killed_leaves_its_part_to_be_done_here(helpers):
    process = helpers._helpers[0]._process
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert results() == [(20.0, os.getpid()), (30.0, os.getpid())]
    awake(helpers)
    assert results()[1][1] != os.getpid()


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_a_helper_that_is_killed_at_work_leaves_its_part_to_be_done_here(helpers):
    process = helpers._helpers[0]._process
    threading.Timer(0.2, lambda: os.kill(process.pid, signal.SIGKILL)).start()
    assert workers.map_chunks(at_once, Factor(1.0), [(0.5,), (0.5,)]) == [None, None]
    assert helpers._helpers[0].closed


def test_two_pieces_of_work_at_once(helpers):
    """The second goes on without helpers, and takes no answer of the first."""
    found: list[list] = []
    first = threading.Thread(target=lambda: found.append(workers.map_chunks(at_once, Factor(1.0), [(0.4,), (0.4,)])))
    first.start()
    time.sleep(0.1)
    assert results() == [(20.0, os.getpid()), (30.0, os.getpid())]
    first.join()
    assert found == [[None, None]] and results()[1][1] != os.getpid()


@pytest.mark.parametrize(("told", "count"), [("1", 1), ("0", 1), ("2", 2)])
def test_as_many_processes_as_told(monkeypatch, told, count):
    monkeypatch.setenv(workers.VARIABLE, told)
    assert workers.count() == count
    assert workers.chunks_of(10_000, 100) == count and workers.chunks_of(150, 100) == 1


def test_never_many_more_than_there_are_processors(monkeypatch):
    monkeypatch.setenv(workers.VARIABLE, "1000000000")
    assert workers.count() <= max(2, os.cpu_count() or 1)


@pytest.mark.parametrize("told", ["", "many", "-2"])
def test_as_many_as_processors_where_nothing_is_told(monkeypatch, told):
    monkeypatch.setenv(workers.VARIABLE, told)
    assert 1 <= workers.count() <= workers.MOST


def test_a_helper_at_work_is_not_waited_for(helpers):
    """A search whose time is over leaves its thread behind; the program ends all the same."""
    waits = threading.Thread(target=lambda: workers.map_chunks(at_once, Factor(1.0), [(0.0,), (60.0,)]), daemon=True)
    waits.start()
    helper = helpers._helpers[0]
    while not helper._at_work:
        time.sleep(0.01)
    began = time.monotonic()
    helpers.close()
    assert helper._process.poll() is not None and time.monotonic() - began < 30


@pytest.mark.parametrize("ends", ["pass", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_helpers_end_with_who_woke_them(ends):
    """At the end of a program, also of one that is killed."""
    if sys.platform == "win32" and "SIGKILL" in ends:
        pytest.skip("no such signal")
    lines = (
        "from hwopt import workers; import time; workers.start_workers()\n"
        "helper = workers._HELPERS._helpers[0]\n"
        "while not helper.ready: time.sleep(0.01)\n"
        f"print(helper._process.pid, flush=True)\n{ends}"
    )
    environment = os.environ | {workers.VARIABLE: "2", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=False, env=environment)
    assert done.stderr == ""
    deadline = time.monotonic() + 60
    while _runs(int(done.stdout)):
        assert time.monotonic() < deadline, "the helper outlives its program"
        time.sleep(0.05)


def _runs(process: int) -> bool:
    """Whether a process is there and not just waiting to be buried."""
    try:
        os.kill(process, 0)
        status = Path(f"/proc/{process}/stat")
        return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")
    except OSError:
        return False
