// Bytes that operator new has allocated and not freed, in programs that this is linked into.
#pragma once

#include <cstdint>

namespace tactus::testing {

// The peak since ForgetPeakBytes; -1 under a sanitizer that owns operator new.
int64_t PeakBytes();
// Resets the peak to the bytes allocated now.
void ForgetPeakBytes();

}  // namespace tactus::testing
