// The codebooks of GGUF's IQ formats: an entry has the numbers of four or eight neighbouring values, the first in its
// lowest bits. codebook_blocks.cc has the values that the numbers stand for.
#pragma once

#include <cstdint>

namespace tactus::compute {

// Eight numbers of 2 bits.
extern const uint16_t kIq2Xxs[256], kIq2Xs[512], kIq2S[1024], kIq1[2048];
// Four numbers of 4 bits.
extern const uint16_t kIq3Xxs[256], kIq3S[512];

}  // namespace tactus::compute
