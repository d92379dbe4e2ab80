// UTF-8: decoding, validation, and replacement of bad bytes by the maximal-subpart rule (Unicode 15, section 3.9, table
// 3-8; what Python's errors='replace' and Rust's from_utf8_lossy do). Pure functions: any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tactus {

constexpr char32_t kReplacementCharacter = 0xFFFD;

// One step of decoding at the start of `text` (not empty).
struct Utf8Step {
  enum class State : unsigned char { kValid, kInvalid, kIncomplete } state;
  size_t size;          // bytes of the character, or of the maximal subpart that one U+FFFD replaces
  char32_t code_point;  // U+FFFD unless kValid
};
// kIncomplete: the bytes are a proper prefix of some character and `text` ends there.
Utf8Step DecodeUtf8(std::string_view text);

bool IsValidUtf8(std::string_view text);
// Every maximal ill-formed subpart becomes one U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);
// The length of `text` without a trailing incomplete character.
size_t CompleteUtf8Prefix(std::string_view text);
void AppendUtf8(char32_t code_point, std::string* out);

}  // namespace tactus
