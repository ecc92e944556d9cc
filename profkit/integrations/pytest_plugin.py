"""A pytest plugin: a test fails if a rule finds a fault, or if a step takes longer than before::

    @pytest.mark.profkit(forbid=["host-sync-in-step"], severity="medium", baseline="baselines", max_regression=0.05)
    def test_training(profkit_session):
        with profkit_session() as prof:
            for batch in loader:
                train_step(batch)
                prof.step()

Without the fixture the whole test is recorded. ``pytest --profkit-update-baseline`` stores the runs as baselines for
later ones. pytest loads this file in every environment with profkit, so it imports nothing else of profkit.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from profkit.integrations.pytest_checks import Session

_MARK = "profkit"
_FIXTURE = "profkit_session"
_WHOLE = pytest.StashKey[bool]()
"""Whether a test is recorded as a whole."""
_HELP = """\
profkit(*, forbid=(), severity=None, baseline=None, max_regression=0.05): fail if a rule named in forbid finds \
something, if a fault has that severity ("low", "medium", "high") or above, or if a step takes longer than in the run \
in the directory `baseline` (beside the test's file) by max_regression or more and by more than the noise. Without any \
of these, severity is "medium"."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("profkit").addoption(
        "--profkit-update-baseline",
        action="store_true",
        help="Store the runs of tests marked profkit(baseline=...) as their baselines instead of comparing them.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _HELP)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Record a marked test as a whole unless it uses the fixture."""
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker(_MARK) is not None:
            item.stash[_WHOLE] = _FIXTURE not in item.fixturenames and not inspect.iscoroutinefunction(item.obj)
            if item.stash[_WHOLE]:
                item.fixturenames.append(_FIXTURE)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    if pyfuncitem.stash.get(_WHOLE, False):
        pyfuncitem.obj = _recorded(pyfuncitem.obj, pyfuncitem.funcargs[_FIXTURE])


@pytest.fixture
def profkit_session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Records a part of the test: ``with profkit_session() as prof:``, and ``prof.step()`` after each step.

    It takes the settings of `profkit.profile`. At the end of the block the mark's demands are checked, and
    ``prof.diagnosis`` is available.
    """
    from profkit.integrations.pytest_checks import Session

    item: pytest.Function = request.node
    return Session(item, item.get_closest_marker(_MARK), tmp_path_factory)


def _recorded(test: Callable[..., Any], session: Any) -> Callable[..., Any]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> Any:
        with session():  # a `Session`, as the fixture makes it
            return test(*args, **kwargs)

    return run
