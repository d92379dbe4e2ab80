// The one function that libtactus_cuda.so exports.
#include "compute/cuda/runtime.h"
#include "compute/exec/device_library.h"

namespace tactus::compute::cuda {
namespace {

Result<std::unique_ptr<Backend>> MakeBackend(const EngineOptions& /*options*/, const ModelDescription& /*description*/,
                                             Clock& /*clock*/) {
  TACTUS_RETURN_IF_ERROR(OpenDevice(0).status());
  return Unimplemented("the CUDA backend computes no model yet", "device");
}

}  // namespace
}  // namespace tactus::compute::cuda

extern "C" const tactus::compute::DeviceLibrary* tactus_device_library() {
  static const std::string version = tactus::compute::DeviceLibraryVersion();
  static const tactus::compute::DeviceLibrary library{version.c_str(), &tactus::compute::cuda::MakeBackend};
  return &library;
}
