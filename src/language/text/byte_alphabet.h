// GPT-2's alphabet, in which byte-level tokenisers spell bytes: printable bytes represent themselves, the others become
// U+0100 and on, in order. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tactus::language {

constexpr char32_t kByteAlphabetEnd = 0x144;  // every character of the alphabet is below

char32_t CharacterOfByte(uint8_t byte);
std::string SpellBytes(std::string_view bytes);
// The bytes of a token's spelling; false: it has a character outside the alphabet (an added token's text).
bool BytesOfSpelling(std::string_view text, std::string* out);
// "<0x0A>" is 10, otherwise -1.
int ByteOfFallbackToken(std::string_view text);
std::string FallbackToken(uint8_t byte);

}  // namespace tactus::language
