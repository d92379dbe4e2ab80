#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tactus {

// Text of another program as one line for people: valid UTF-8, no control characters, and at most `most_bytes` of it.
std::string OneLine(std::string_view text, size_t most_bytes = 300);

}  // namespace tactus
