// Base64 with the standard alphabet. Pure function: any thread.
#pragma once

#include <string>
#include <string_view>

namespace tactus::language {

// False: `text` has another character, or padding that is not at its end.
bool DecodeBase64(std::string_view text, std::string* bytes);

}  // namespace tactus::language
