// The external processing service over gRPC: what it hears goes to a Stream (fleet/picker/stream.h), what that replies
// is sent. Any number of streams on gRPC's few threads: of each stream one read or one write is under way at any time,
// so that a data plane that reads slowly is also read slowly.
#pragma once

#include <memory>

#include "fleet/picker/picker.h"
#include "fleet/picker/stream.h"

namespace grpc {
class Service;
}

namespace tactus::fleet {

// `assumed` is the mode of both bodies where a data plane does not state them. `picker` outlives the service.
std::shared_ptr<grpc::Service> MakeExtProcService(Picker& picker, BodyMode assumed);

}  // namespace tactus::fleet
