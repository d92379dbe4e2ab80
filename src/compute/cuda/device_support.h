// Which driver and which device this build runs on, and what to say where it does not. Pure functions. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tactus::compute::cuda {

// "13.0" of 13000, as CUDA writes versions.
std::string CudaVersionText(int version);

// The release in the first line of /proc/driver/nvidia/version: "580.159.04"; empty: there is none.
std::string DriverReleaseOf(std::string_view line);

// `driver`: the CUDA version that the driver supports, 0 without a driver; `runtime`: the version of this build.
std::string OldDriverText(int driver, std::string_view release, int runtime);

// `architectures`: of the build, as in "80,86,90a". Code of 8.0 runs on 8.6 too, the reverse is false, and code of an
// architecture with a letter runs on that one alone (NVIDIA, "CUDA C++ Programming Guide", "Binary Compatibility").
// `capability`: 10 * major + minor.
bool HasCodeFor(std::string_view architectures, int32_t capability);
std::string NoCodeText(std::string_view device, int32_t capability, std::string_view architectures);

}  // namespace tactus::compute::cuda
