#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tactus {

// What another program said, as a line for people: valid UTF-8, nothing that a terminal obeys, and no more bytes than a
// limit.
std::string OneLine(std::string_view text, size_t most_bytes = 300);

}  // namespace tactus
