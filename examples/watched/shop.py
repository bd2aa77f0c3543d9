"""A shop with a topic of orders, and a loop that ships them: an example to watch.

    python examples/watched/shop.py kafka:9092

Creates the topics `orders` and `shipped` if they are missing, and runs until Ctrl-C. One order in
1,000 is never shipped.
"""

import json
import sys
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

ORDERS, SHIPPED = "orders", "shipped"
ORDERS_PER_SECOND = 100


def main(bootstrap: str) -> None:
    """Order and ship until interrupted."""
    kafka = {"bootstrap.servers": bootstrap}
    make_topics(AdminClient(kafka))
    producer = Producer(kafka | {"linger.ms": 2})
    consumer = Consumer(kafka | {"group.id": "shop", "auto.offset.reset": "latest"})
    consumer.subscribe([ORDERS])
    number, begin_s = 0, time.time()
    try:
        while True:
            while number < (time.time() - begin_s) * ORDERS_PER_SECOND:
                order = {"id": f"{int(begin_s)}-{number}", "articles": number % 5 + 1}
                producer.produce(ORDERS, json.dumps({"order": order}), f"customer-{number % 50}")
                number += 1
            for message in consumer.consume(100, 0.01):
                if message.error() is None:
                    ship(producer, json.loads(message.value())["order"]["id"])
            producer.poll(0)
    except KeyboardInterrupt:
        producer.flush(10)
        consumer.close()


def ship(producer: Producer, order: str) -> None:
    """Publish that an order was shipped; skips some orders."""
    if int(order.rpartition("-")[2]) % 1_000 != 999:
        producer.produce(SHIPPED, json.dumps({"at": time.time()}), order)


def make_topics(admin: AdminClient) -> None:
    """Create topics with LogAppendTime."""
    config = {"message.timestamp.type": "LogAppendTime"}
    there = admin.list_topics(timeout=10).topics
    missing = [
        NewTopic(name, 2, 1, config=config) for name in (ORDERS, SHIPPED) if name not in there
    ]
    for future in (admin.create_topics(missing) if missing else {}).values():
        future.result(10)


if __name__ == "__main__":
    main(sys.argv[1])
