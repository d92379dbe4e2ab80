// Character classes as in Rust's and Oniguruma's regexes, and normal forms, for the tokenisers. Pure functions: any
// thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace tactus::language {

bool IsWhiteSpace(char32_t c);     // Unicode White_Space
bool IsWordCharacter(char32_t c);  // UTS 18 \w
bool StartsWithWord(std::string_view text);
bool EndsWithWord(std::string_view text);
// Number of white-space bytes at the start or end.
size_t LeadingWhiteSpace(std::string_view text);
size_t TrailingWhiteSpace(std::string_view text);

// Canonical composition with the tables of Unicode 9, as in Hugging Face's tokenizers. `text` is valid UTF-8.
std::string NormalizeNfc(std::string_view text);

}  // namespace tactus::language
