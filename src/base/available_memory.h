// How much memory this process may still take: the smallest of what the machine has available, what each cgroup (v1 or
// v2) on the way to the root leaves, and what the limits on address space and data (ulimit -v, -d) leave.
#pragma once

#include <cstdint>
#include <string>

namespace tactus {

// Bytes; -1 where nothing can be read (then there is no limit to plan against). `root` replaces "/" in tests.
int64_t AvailableMemoryBytes(const std::string& root = "");

}  // namespace tactus
