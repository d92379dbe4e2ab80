// The list of what the emulator found wrong. Any thread.
#pragma once

#include <source_location>
#include <string>
#include <vector>

namespace tactus::compute::cuda::emulator {

// The place of the call in a kernel. Accessors and intrinsics take it as a default argument.
using Where = std::source_location;

// Whether Report() would do nothing, so that the detail need not be written: a kernel with a fault has it millions of
// times.
[[gnu::noinline, gnu::cold]] bool IsReported(const char* kind, const Where& where);
// Adds a finding, with the kernel, block and thread that run now, unless this place of this kernel has one of this
// kind.
[[gnu::noinline, gnu::cold]] void Report(const char* kind, const Where& where, const std::string& detail = {});
// A finding of a call outside kernels.
[[gnu::noinline, gnu::cold]] void ReportCall(const char* kind, const std::string& detail);

std::vector<std::string> DrainFindings();

}  // namespace tactus::compute::cuda::emulator
