// Limits of a process's cores beside its affinity (thread_pool.h: UsableCores).
#pragma once

#include <cstdint>
#include <string>

namespace tactus::compute {

// The cgroup quota (base/cpu_limits.h) in whole cores, at least one, since a step's threads wait for each other; 0:
// none. `root` replaces "/" in tests.
int32_t QuotaCores(const std::string& root = "");

}  // namespace tactus::compute
