#pragma once

#include <string>
#include <string_view>

namespace tactus {

// Untrusted text for messages: cut to 80 characters, with control and non-ASCII bytes replaced.
std::string Printable(std::string_view text);

}  // namespace tactus
