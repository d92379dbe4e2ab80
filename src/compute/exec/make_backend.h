// Selects the backend that computes a model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/backend.h"
#include "base/clock.h"
#include "compute/model/operator_profile.h"
#include "compute/weights/model_description.h"
#include "tactus/options.h"

namespace tactus::compute {

// The backend for this model and these options, by --device. Reads no weights and allocates no memory for them, so an
// impossible start is refused at once: kInvalidArgument names the flag, its choices and a remedy; kUnavailable names
// what --device cuda lacks here. `description` is copied. `clock` measures steps and loading and outlives the backend.
Result<std::unique_ptr<Backend>> MakeBackend(const EngineOptions& options, const ModelDescription& description,
                                             Clock& clock);

// The CPU's backend for these options, whose executor counts and times every step's operators in *profile, which
// outlives it and is read only while no step runs.
Result<std::unique_ptr<Backend>> MakeCountingBackend(const EngineOptions& options, const ModelDescription& description,
                                                     Clock& clock, OperatorProfile* profile);

// Where MakeBackend looks for a device and the library of its backend (device_library.h).
struct DevicePlaces {
  std::string device_file;             // exists only where a driver is loaded
  std::vector<std::string> libraries;  // the first that exists is loaded
};
Result<std::unique_ptr<Backend>> MakeBackendOf(const DevicePlaces& places, const EngineOptions& options,
                                               const ModelDescription& description, Clock& clock);

}  // namespace tactus::compute
