"""Options and fixtures of all tests: golden files are rewritten with `pytest --update-golden`.

Tests run generated kernels as plain Python, which needs no compilation, but for those marked `compiled`: `pytest -m compiled` runs them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no mistake of a test.
settings.register_profile("ampc", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ampc")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected texts instead of comparing with them")


def pytest_configure(config: pytest.Config) -> None:
    # What is started by a shell in the background ignores Ctrl-C, and so would the processes to which tests send it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Before anything imports numba, which looks at this once.
    if not compiles(config):
        os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
    elif hasattr(config, "workerinput"):
        # The sessions of xdist compile at the same time; further processes would take longer to start than the few functions of a test to compile.
        from ampc.runtime import compiling

        compiling.usable_cores = lambda: 1


def compiles(config: pytest.Config) -> bool:
    """Whether this session runs the tests of compiled kernels, and those alone."""
    expression = str(config.getoption("markexpr"))
    return "compiled" in expression and "not compiled" not in expression


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not compiles(config):
        other = [item for item in items if item.get_closest_marker("compiled")]
        config.hook.pytest_deselected(items=other)
        items[:] = [item for item in items if not item.get_closest_marker("compiled")]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Return a function that compares a text with a file, or rewrites the file under `--update-golden`."""

    def compare(path: Path, text: str) -> None:
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden") or os.environ.get("AMPC_UPDATE_GOLDEN"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        if not path.exists():
            pytest.fail(f"{path.name} is missing: `pytest --update-golden` writes it")
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs: `pytest --update-golden` rewrites it, the diff is to be read"

    return compare
