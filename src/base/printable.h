#pragma once

#include <string>
#include <string_view>

namespace tactus {

// A name from a hostile file, cut to 80 characters and with control characters replaced, for messages.
std::string Printable(std::string_view text);

}  // namespace tactus
