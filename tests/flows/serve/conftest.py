"""A service in a test waits for slow requests: on a busy machine the test itself is slow."""

import pytest

from clicktower.flows.serve import endpoints, service
from tests.waiting import SECONDS


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    monkeypatch.setattr(endpoints, "BODY_SECONDS", SECONDS)
    monkeypatch.setattr(service, "_HEAD_SECONDS", SECONDS)
