#include "compute/exec/make_backend.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "compute/exec/cpu_backend.h"
#include "compute/exec/device_library.h"

namespace tactus::compute {
namespace {

constexpr char kDeviceFile[] = "/dev/nvidiactl";

Result<std::unique_ptr<Backend>> MakeCuda(const DevicePlaces& places, const EngineOptions& options,
                                          const ModelDescription& description, Clock& clock) {
  TACTUS_ASSIGN_OR_RETURN(const DeviceLibrary* library, LoadDeviceLibrary(places.libraries));
  return library->make_backend(options, description, clock);
}

}  // namespace

Result<std::unique_ptr<Backend>> MakeBackend(const EngineOptions& options, const ModelDescription& description,
                                             Clock& clock) {
  return MakeBackendOf({kDeviceFile, DeviceLibraryPaths()}, options, description, clock);
}

Result<std::unique_ptr<Backend>> MakeCountingBackend(const EngineOptions& options, const ModelDescription& description,
                                                     Clock& clock, OperatorProfile* profile) {
  return MakeCpuBackend(options, description, clock, {}, profile);
}

Result<std::unique_ptr<Backend>> MakeBackendOf(const DevicePlaces& places, const EngineOptions& options,
                                               const ModelDescription& description, Clock& clock) {
  if (options.device == "cuda") {
    auto made = MakeCuda(places, options, description, clock);
    if (made.ok()) return made;
    const Status& why = made.status();
    return Status(why.code(), "--device cuda: " + why.message(), why.param().empty() ? "device" : why.param());
  }
  std::error_code error;
  if (options.device == "cpu" || places.libraries.empty() || !std::filesystem::exists(places.device_file, error)) {
    return MakeCpuBackend(options, description, clock);
  }
  auto made = MakeCuda(places, options, description, clock);
  if (made.ok()) return made;
  return MakeCpuBackend(options, description, clock,
                        fmt::format("the GPU of this machine is not used: {}", made.status().message()));
}

}  // namespace tactus::compute
