// Counts this test binary's calls of operator new.
#pragma once

#include <cstdint>

namespace tactus::test {
int64_t AllocationCount();  // -1 under a sanitizer, which replaces operator new
}  // namespace tactus::test
