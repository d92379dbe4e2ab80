// The external processing service over gRPC: passes its messages to a Stream (fleet/picker/stream.h), and sends the
// replies. Any number of streams on gRPC's few threads: each stream has one read or one write in progress at any time,
// so that a data plane that reads slowly is also read slowly.
#pragma once

#include <memory>

#include "fleet/picker/picker.h"
#include "fleet/picker/stream.h"

namespace grpc {
class Service;
}

namespace tactus::fleet {

// `assumed`: mode of both bodies if a data plane does not state them. `picker` outlives the service.
std::shared_ptr<grpc::Service> MakeExtProcService(Picker& picker, BodyMode assumed);

}  // namespace tactus::fleet
