// A device library whose backend says what it is. -DVERSION gives it another version, -DNO_SYMBOL leaves its function
// out.
#include "compute/exec/device_library.h"

namespace tactus::compute {
namespace {

class FakeBackend final : public Backend {
 public:
  BackendInfo Info() const override {
    BackendInfo info;
    info.devices = {{"fake device", 1 << 20}};
    return info;
  }
  Result<MemoryGrant> PlanMemory(const MemoryDemand&) const override { return MemoryGrant(); }
  Result<std::string> LoadWeights(const Say&) override { return Unimplemented("a fake device has no weights"); }
  Result<std::unique_ptr<Executor>> CreateExecutor(const ExecutorSize&) override {
    return Unimplemented("a fake device runs nothing");
  }
};

// --dtype float32 stands for a machine without a driver.
[[maybe_unused]] Result<std::unique_ptr<Backend>> MakeFake(const EngineOptions& options, const ModelDescription&,
                                                           Clock&) {
  if (options.dtype == "float32") return Status(StatusCode::kUnavailable, "no driver is installed");
  if (!options.kernels.empty()) return InvalidArgument("--kernels is not possible", "kernels");
  return std::unique_ptr<Backend>(std::make_unique<FakeBackend>());
}

}  // namespace
}  // namespace tactus::compute

#ifndef NO_SYMBOL
extern "C" const tactus::compute::DeviceLibrary* tactus_device_library();
extern "C" const tactus::compute::DeviceLibrary* tactus_device_library() {
#ifdef VERSION
  static const std::string version = VERSION;
#else
  static const std::string version = tactus::compute::DeviceLibraryVersion();
#endif
  static const tactus::compute::DeviceLibrary library{version.c_str(), &tactus::compute::MakeFake};
  return &library;
}
#endif
