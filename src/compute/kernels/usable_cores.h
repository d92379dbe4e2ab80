// Limits of a process's cores beside its affinity (thread_pool.h: UsableCores).
#pragma once

#include <cstdint>
#include <string>

namespace tactus::compute {

// The cgroup quota in whole cores, of this process's group and all above it; 0: none. `root` replaces "/" in tests.
int32_t QuotaCores(const std::string& root = "");

}  // namespace tactus::compute
