// What limits the cores that a process may use, beside its affinity (thread_pool.h: UsableCores).
#pragma once

#include <cstdint>
#include <string>

namespace tactus::compute {

// The cgroups' quota in whole cores, of this process's group and all above it; 0: none. `root` stands in for "/" in
// tests.
int32_t QuotaCores(const std::string& root = "");

}  // namespace tactus::compute
