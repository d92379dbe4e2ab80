// How much memory this process may still take: the smallest of what the machine has available and what each cgroup (v1 or
// v2) on the way to the root leaves.
#pragma once

#include <cstdint>
#include <string>

namespace tactus {

// Bytes; -1 where nothing can be read (then there is no limit to plan against). `root` replaces "/" in tests.
int64_t AvailableMemoryBytes(const std::string& root = "");

}  // namespace tactus
