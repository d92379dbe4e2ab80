// The memory that this process may still allocate: the smallest of the machine's available memory, the rest of each
// cgroup (v1 or v2) up to the root, and the rest of the limits on address space and data (ulimit -v, -d).
#pragma once

#include <cstdint>
#include <string>

namespace tactus {

// Bytes; -1 if nothing can be read (then there is no limit to plan for). `root` replaces "/" in tests.
int64_t AvailableMemoryBytes(const std::string& root = "");

}  // namespace tactus
