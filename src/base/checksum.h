// A checksum against accidents, at the speed of memory: eight chains of multiplications. Files keep it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tactus {

uint64_t Checksum(const std::byte* data, size_t size);

}  // namespace tactus
