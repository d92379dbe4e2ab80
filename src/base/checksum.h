// A checksum against accidental damage, at memory speed: eight chains of multiplications. It is stored in files. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tactus {

uint64_t Checksum(const std::byte* data, size_t size);

}  // namespace tactus
