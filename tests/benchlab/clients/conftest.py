"""What must hold for every transport is run over each: a module or a function says which in `TRANSPORTS`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import talk

BOTH = ("native", "aiohttp")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "transport" in metafunc.fixturenames:
        names = getattr(metafunc.module, "TRANSPORTS", ("native",))
        only = metafunc.definition.get_closest_marker("usefixtures")
        if only is not None and "native_only" in only.args:
            names = ("native",)
        metafunc.parametrize("transport", names, indirect=True, scope="function")


@pytest.fixture
def native_only() -> None:
    """Asks for what only sockets of our own have: kernel stamps, the connection's own parser and pool."""


@pytest.fixture
def transport(request: pytest.FixtureRequest) -> Iterator[str]:
    """The transport that `talk.client_for` uses."""
    before, talk.TRANSPORT = talk.TRANSPORT, request.param
    yield request.param
    talk.TRANSPORT = before
