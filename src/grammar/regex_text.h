// A client's regular expression as it is handed to llguidance. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace tactus::grammar {

// With \d, \w and \s, and their opposites outside of brackets, as sets of ASCII characters: so ECMA 262 has them, which
// JSON Schema goes by, and so clients expect them. The library's own are Unicode's, where \d is 760 digits.
std::string AsciiClasses(std::string_view expression);

}  // namespace tactus::grammar
