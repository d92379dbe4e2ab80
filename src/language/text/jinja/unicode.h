// Code points of UTF-8 text with Python's str predicates and case mappings (ICU's data). All functions are pure; the
// text is valid UTF-8 (checked on input).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tactus::language::jinja {

// The code point at *position, which is advanced past it. *position < text.size().
uint32_t NextCodePoint(std::string_view text, size_t* position);
size_t CodePointCount(std::string_view text);
// Byte offset of code point `index` (<= count).
size_t ByteOffset(std::string_view text, size_t index);

bool IsSpace(uint32_t c);
bool IsPrintable(uint32_t c);
bool IsDigit(uint32_t c);
bool IsIdentifierStart(uint32_t c);
bool IsIdentifierPart(uint32_t c);

std::string ToLower(std::string_view text);
std::string ToUpper(std::string_view text);
std::string Capitalize(std::string_view text);
std::string Title(std::string_view text);  // str.title()

// Trims code points that `chars` contains (nullptr: white space).
std::string_view Strip(std::string_view text, const std::string_view* chars, bool left, bool right);
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

}  // namespace tactus::language::jinja
