"""An example of your own pipeline, measured by: ./tidegauge run --pipeline external-python

Reads both input topics and publishes stage 0 (the unchanged bytes) and stage 1 (the decoded
observation) of the domain traffic. It depends on Tidegauge for the format of the records only; in
another language that is Avro with the files of domains/traffic. See
docs/your-own-kafka-and-spark.md.
"""

import json
import os
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from schemas.codec import DecodeError, RecordSchemas, load_schema

records = RecordSchemas(load_schema(path) for path in Path("domains/traffic").glob("*.avsc"))
kafka = {"bootstrap.servers": os.environ["TIDEGAUGE_KAFKA_BOOTSTRAP"]}
stages = os.environ["TIDEGAUGE_STAGES"].split(",")
output = os.environ["TIDEGAUGE_OUTPUT"]
starts = json.loads(os.environ["TIDEGAUGE_START_OFFSETS"])

consumer = Consumer(kafka | {"group.id": "external-python", "enable.auto.commit": False})
consumer.assign([TopicPartition(t, n, at) for t, ats in starts.items() for n, at in enumerate(ats)])
producer = Producer(kafka | {"linger.ms": 1, "enable.idempotence": True})
values = {"flow_vehicles_per_hour": None, "speed_km_per_hour": None}

while True:
    producer.poll(0)
    message = consumer.poll(0.1)
    if message is None or message.error():
        continue
    if "ingest" in stages:
        producer.produce(f"{output}ingest", message.value(), message.key())
    if "parse" in stages:
        try:
            _name, fields = records.decode(message.value())
        except DecodeError:
            continue  # a real pipeline stores undecodable records
        del fields["scheduled_at"]
        value = records.encode("output_parse", values | fields)
        producer.produce(f"{output}parse", value, message.key())
