// Character classes as Rust's and Oniguruma's regexes define them, and normal forms, for the tokenisers. Pure
// functions: any thread.
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
// How many bytes at the start, at the end, are white space.
size_t LeadingWhiteSpace(std::string_view text);
size_t TrailingWhiteSpace(std::string_view text);

// Canonical composition with the tables of Unicode 9, as Hugging Face's tokenizers has them. `text` is valid UTF-8.
std::string NormalizeNfc(std::string_view text);

}  // namespace tactus::language
