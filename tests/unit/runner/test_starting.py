"""Which failures of a start are for lack of processor time."""

import pytest

from services.runner.session import Waited, lacked_cpu, waited

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "reason",
    [
        "org.apache.spark.SparkException: Python worker failed to connect back.",
        "Caused by: java.util.concurrent.TimeoutException: Futures timed out after [120 seconds]",
        "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment.",
        "org.apache.pekko.pattern.AskTimeoutException: Ask timed out on [actor] after [10000 ms].",
        "NoResourceAvailableException: Could not acquire the minimum required resources.",
        "The heartbeat of TaskManager with id localhost timed out.",
        "KeeperErrorCode = ConnectionLoss for /storm",
        "NimbusLeaderNotFoundException: Could not find leader nimbus from seed hosts",
        "NodeNotReadyError: Attempt to send a request to node which is not ready (node id 1).",
        "KafkaError{code=_TIMED_OUT,val=-185,str=\"Failed to get metadata: Local: Timed out\"}",
        "TimeoutError",
    ],
)  # fmt: skip
def test_something_that_did_not_answer_in_time_is_tried_again_on_a_busy_machine(reason):
    assert lacked_cpu(reason, Waited(100, 40), Waited(130, 46))
    assert not lacked_cpu(reason, Waited(100, 40), Waited(130, 45.9))


@pytest.mark.parametrize(
    "reason",
    [
        "UnknownTopicOrPartitionException: This server does not host this topic-partition.",
        "ModuleNotFoundError: No module named 'faust'",
        "java.lang.OutOfMemoryError: Java heap space",
        "its log has no message",
        "some data may have been lost because they are not available in Kafka any more",
    ],
)
def test_any_other_cause_is_not(reason):
    assert not lacked_cpu(reason, Waited(100, 40), Waited(130, 70))


def test_the_waiting_of_this_machine_is_known():
    before = waited()
    after = waited()
    assert after.at_s >= before.at_s
    assert after.waited_s >= before.waited_s >= 0


@pytest.mark.parametrize(("load", "share"), [(1.5, 1.0), (0.5, 0.0)])
def test_without_the_kernel_s_figures_the_load_decides(tmp_path, load, share):
    now = waited(tmp_path / "missing", lambda: load)
    assert Waited(0, 0).share_until(now) == share
