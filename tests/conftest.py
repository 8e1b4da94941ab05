"""What every test shares: compiled programs, kept between runs, how they are compiled, and which tests start first."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import sys
from pathlib import Path

import pytest

from hwopt import workers
from tests import durations, groups, tiers
from tests.compiling import QUICK


def pytest_addoption(parser):
    parser.addoption("--write-durations", action="store_true", help=f"write {durations.TABLE.name}: seconds by module")
    parser.addoption(
        "--changed-since", metavar="REV", help="of the search tests, those of changed packages and one in 20"
    )


def pytest_report_header():
    return f"turn {tiers.turn()} (seeds of samples; HWOPT_TEST_TURN=N repeats one)"


def pytest_configure(config):
    gc.set_threshold(20_000, 20, 100)
    os.environ.setdefault(workers.VARIABLE, "1")  # tests run beside each other already
    before = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = f"{before or ''} {QUICK}"
    import jax

    # Workers share the cache: jax does not lock it, and compiles again what it finds half written.
    kept = config.cache.mkdir("jax")
    kept.chmod(0o700)  # traces are kept only where nobody else can write
    jax.config.update("jax_compilation_cache_dir", str(kept))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    jax.devices()  # reads the flags
    if before is None:
        del os.environ["XLA_FLAGS"]
    else:
        os.environ["XLA_FLAGS"] = before


@pytest.fixture(scope="session", autouse=True)
def every_json_follows_its_schema():
    """Whatever a test has a command print as JSON has the keys and kinds that its schema names, and no others."""
    from hwopt.cli import output
    from tests.schemas import check

    signed = output.signed

    def checked(command, document, *line):
        answer = signed(command, document, *line)
        check(command, answer)
        return answer

    output.signed = checked
    yield
    output.signed = signed


@pytest.fixture
def solved_once(monkeypatch):
    """Searches that are remembered: see `tests/answers.py`."""
    from tests import answers

    answers.remember(monkeypatch)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return groups.group_of(nodeid)

    return Groups(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if since := config.getoption("--changed-since"):
        items[:], left = tiers.in_turn(items, since)
        config.hook.pytest_deselected(items=left)
    durations.longest_first(items)


MOST_BYTES = 3 * 2**30
"""Memory that a worker gains before it forgets compiled programs and traces: some searches leave gigabytes of them."""

_left = [0]
"""Memory that was left when a worker last forgot."""


def resident_bytes():
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


def forget():
    """Empty JAX's caches and those of hwopt's functions, and return the memory to the system."""
    import jax

    gc.unfreeze()
    jax.clear_caches()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("hwopt", "objectives"):
            for each in list(vars(module).values()):
                if isinstance(each, functools._lru_cache_wrapper):
                    each.cache_clear()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """What a module leaves behind, traces of millions of objects, stays and is not walked again: a twelfth of a run's time."""
    if resident_bytes() > MOST_BYTES + _left[0]:
        forget()
        _left[0] = resident_bytes()
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    durations.add_to(report)
    return report


def pytest_collection_finish():
    durations.started()


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cpu_s"] = durations.cpu_s()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    durations.worker_ended(getattr(node, "workeroutput", {}))


def pytest_terminal_summary(terminalreporter, config):
    reports = [r for each in terminalreporter.stats.values() for r in each if isinstance(r, pytest.TestReport)]
    terminalreporter.write_line(durations.spent(reports))
    if config.getoption("--write-durations"):
        durations.write(reports)


# jaxtyping's import hook is left out: it would check the constructors too, where annotations promise a jax Array and
# the catalogue rightly passes NumPy float64, which is cast at the boundary only.
