// Bytes that operator new has given out and not taken back, in programs that this is linked into.
#pragma once

#include <cstdint>

namespace tactus::testing {

// The most since ForgetPeakBytes; -1 under a sanitizer that owns operator new.
int64_t PeakBytes();
// From here on: the most is what is held now.
void ForgetPeakBytes();

}  // namespace tactus::testing
