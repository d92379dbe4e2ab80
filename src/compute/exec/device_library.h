// The border between a program and the library with a device's backend, libtactus_cuda.so. The library is loaded at run
// time, where it and a device are there, so the program runs on machines without either.
//
// Objects of C++ cross the border, so both sides must be of one build: they compare DeviceLibraryVersion().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/backend.h"
#include "base/clock.h"
#include "compute/weights/model_description.h"
#include "tactus/options.h"
#include "tactus/version.h"

namespace tactus::compute {

struct DeviceLibrary {
  const char* version = nullptr;  // of the library: its DeviceLibraryVersion(); in all versions the first member
  // As MakeBackend. kUnavailable: what is missing, a driver or a device.
  Result<std::unique_ptr<Backend>> (*make_backend)(const EngineOptions& options, const ModelDescription& description,
                                                   Clock& clock) = nullptr;
};

// What the library exports, `extern "C"`.
using DeviceLibraryFunction = const DeviceLibrary*();
inline constexpr char kDeviceLibrarySymbol[] = "tactus_device_library";
inline constexpr char kDeviceLibraryFile[] = "libtactus_cuda.so";

// Version of Tactus, compiler, and the sizes of what crosses the border. Inline: the library has its own.
inline std::string DeviceLibraryVersion() {
  return std::string("tactus ") + Version() + ", compiler " + __VERSION__ + ", options of " +
         std::to_string(sizeof(EngineOptions)) + ", models of " + std::to_string(sizeof(ModelDescription)) +
         ", plans of " + std::to_string(sizeof(StepPlan) + sizeof(StepResult)) + " bytes";
}

// Where the library is looked for: only TACTUS_CUDA_LIBRARY if it is set (none: nowhere), else beside the program or
// the library that contains this code, and in its lib folders.
std::vector<std::string> DeviceLibraryPaths();

// Loads the first of `paths` that exists; it stays loaded. kUnavailable: none exists; kInternal: it cannot be loaded or
// is of another build; both name what was tried.
Result<const DeviceLibrary*> LoadDeviceLibrary(const std::vector<std::string>& paths);

}  // namespace tactus::compute
