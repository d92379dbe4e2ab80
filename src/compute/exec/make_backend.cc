#include "compute/exec/make_backend.h"

#include "compute/exec/cpu_backend.h"

namespace tactus::compute {

Result<std::unique_ptr<Backend>> MakeBackend(const EngineOptions& options, const ModelDescription& description,
                                             Clock& clock) {
  return MakeCpuBackend(options, description, clock);
}

}  // namespace tactus::compute
