"""Which ports a stack has: consecutive ones from its base port. Imports nothing: see probe.py."""

DEFAULT_BASE_PORT = 17070
PORT_OFFSETS = {
    "kafka": 0,
    "kafka_controller": 1,
    "store": 2,
    "evaluator": 3,
    "generator": 4,
    "spark_pipeline": 5,
    "collector": 6,
    "conductor": 7,
    "kafka_metrics": 8,
    "kafka_internal": 9,
}
