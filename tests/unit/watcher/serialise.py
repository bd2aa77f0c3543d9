"""Writes data/serialised.json: one order, serialised by the serialisers of confluent-kafka.

They need packages that nothing else here needs, so it runs in an environment of its own:

    uv run --no-project --with 'confluent-kafka[avro,json,protobuf,schemaregistry]==2.16.1' \
        python tests/unit/watcher/serialise.py
"""

import base64
import json
from pathlib import Path

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ORDER = {"id": 42, "site": {"name": "north"}}
SITE = {"type": "record", "name": "Site", "fields": [{"name": "name", "type": "string"}]}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "site", "type": SITE}],
}
NAMED = {"type": "object", "properties": {"name": {"type": "string"}}}
JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "site": NAMED},
}


def descriptors() -> descriptor_pb2.FileDescriptorSet:
    """A file with Other, and Order, which is the second message: the frame has its index."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    kind = {"type": field.TYPE_MESSAGE, "type_name": ".shop.Order.Site"}
    order.field.add(name="site", number=2, label=field.LABEL_OPTIONAL, **kind)
    site = order.nested_type.add(name="Site")
    site.field.add(name="name", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[file])


def main() -> None:
    """Serialise the order, and write the frames with what is needed to read them."""
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    context = SerializationContext("orders", MessageField.VALUE)
    files = descriptors()
    pool = descriptor_pool.DescriptorPool()
    pool.Add(files.file[0])
    message_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    message = message_class(id=ORDER["id"], site={"name": ORDER["site"]["name"]})
    frames = {
        "avro-confluent": AvroSerializer(client, json.dumps(AVRO))(ORDER, context),
        "json-confluent": JSONSerializer(json.dumps(JSON), client)(
            ORDER, SerializationContext("told", MessageField.VALUE)
        ),
        "protobuf-confluent": ProtobufSerializer(
            message_class, client, {"use.deprecated.format": False}
        )(message, SerializationContext("sent", MessageField.VALUE)),
    }
    found = {
        "frames": {name: base64.b64encode(frame).decode() for name, frame in frames.items()},
        "schema_ids": {str(int.from_bytes(frames["avro-confluent"][1:5], "big")): AVRO},
        "descriptors": base64.b64encode(files.SerializeToString()).decode(),
    }
    path = Path(__file__).parent / "data" / "serialised.json"
    path.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
