// The one function that libtactus_cuda.so exports.
#include "compute/cuda/cuda_backend.h"
#include "compute/exec/device_library.h"

extern "C" const tactus::compute::DeviceLibrary* tactus_device_library() {
  static const std::string version = tactus::compute::DeviceLibraryVersion();
  static const tactus::compute::DeviceLibrary library{version.c_str(), &tactus::compute::cuda::MakeCudaBackend};
  return &library;
}
