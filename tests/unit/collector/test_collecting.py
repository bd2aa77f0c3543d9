"""What the collector answers to a command."""

import os
from unittest.mock import Mock

import pytest

from schemas import protocol
from services.collector.collecting import Collecting
from services.collector.settings import CollectorSettings

pytestmark = pytest.mark.unit


def test_it_is_ready_at_once_and_says_how_many_cores_it_observes() -> None:
    events = Mock()
    collecting = Collecting(CollectorSettings(), events, Mock())
    collecting.handle_command({"command": "prepare", "run_id": "run-1"})
    detail = {"machine_cores": os.cpu_count()}
    events.lifecycle.assert_called_once_with(protocol.READY, "run-1", detail=detail)
