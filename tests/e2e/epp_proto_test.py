"""src/fleet/picker/external_processor.proto against the published descriptors (package xds-protos): its messages are
parts of the published ones, with the same numbers, types and shapes."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

try:
    from envoy.config.core.v3 import base_pb2
    from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
    from envoy.service.ext_proc.v3 import external_processor_pb2
    from envoy.type.v3 import http_status_pb2
    from google.protobuf import descriptor_pb2
    from google.protobuf.descriptor import FieldDescriptor
except ImportError as error:
    raise unittest.SkipTest(f"no package of tests/requirements.txt: {error}")
if shutil.which("protoc") is None:
    raise unittest.SkipTest("no protoc")

PROTO = pathlib.Path(__file__).resolve().parents[2] / "src/fleet/picker/external_processor.proto"
PUBLISHED = (external_processor_pb2, base_pb2, http_status_pb2)
# In another package here; an int32 and an enum are the same on the wire.
MODE = processing_mode_pb2.ProcessingMode.DESCRIPTOR.enum_types_by_name["BodySendMode"]
INTS = {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_ENUM}


def trimmed():
    with tempfile.NamedTemporaryFile(suffix=".desc") as out:
        subprocess.run(
            ["protoc", f"-I{PROTO.parent}", "-I/usr/include", f"--descriptor_set_out={out.name}", str(PROTO)],
            check=True,
            timeout=60,
        )
        return descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes()).file[0]


def published(name):
    for module in PUBLISHED:
        if (found := module.DESCRIPTOR.message_types_by_name.get(name)) is not None:
            return found
    return None


class ProtoTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.file = trimmed()

    def compare_field(self, message, field, real):
        where = f"{message.name}.{field.name}"
        self.assertEqual(field.number, real.number, where)
        wanted = {real.type} | (INTS if real.type in INTS else set())
        self.assertIn(field.type, wanted, where)
        repeated = field.label == descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
        self.assertEqual(repeated, real.is_repeated, where)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            self.assertEqual(field.type_name.rsplit(".", 1)[1], real.message_type.name, where)
        self.assertEqual(field.HasField("oneof_index"), real.containing_oneof is not None, where)

    def test_every_message_is_a_part_of_the_published_one(self):
        self.assertGreater(len(self.file.message_type), 15)
        for message in self.file.message_type:
            real = published(message.name)
            self.assertIsNotNone(real, message.name)
            for field in message.field:
                self.assertIn(field.name, real.fields_by_name, message.name)
                self.compare_field(message, field, real.fields_by_name[field.name])
            for nested in message.nested_type:  # of a map field
                for field in nested.field:
                    self.compare_field(nested, field, real.nested_types_by_name[nested.name].fields_by_name[field.name])
            for enum in message.enum_type:
                self.compare_enum(enum, real.enum_types_by_name[enum.name])

    def compare_enum(self, enum, real):
        for value in enum.value:
            self.assertEqual(value.number, real.values_by_name[value.name].number, f"{enum.name}.{value.name}")

    def test_enums(self):
        self.assertEqual([e.name for e in self.file.enum_type], ["BodySendMode"])
        self.compare_enum(self.file.enum_type[0], MODE)

    def test_the_service_has_the_published_name(self):
        real = external_processor_pb2.DESCRIPTOR
        self.assertEqual(self.file.package, real.package)
        service, method = self.file.service[0], self.file.service[0].method[0]
        wanted = real.services_by_name[service.name].methods_by_name[method.name]
        self.assertEqual(method.input_type, "." + wanted.input_type.full_name)
        self.assertEqual(method.output_type, "." + wanted.output_type.full_name)
        self.assertTrue(method.client_streaming and method.server_streaming)


if __name__ == "__main__":
    unittest.main()
