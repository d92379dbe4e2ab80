// Character classes and normal forms as in the reference's engines and libraries, for the tokenisers. Some of those
// have tables of older versions of Unicode, in which newer characters belong to no class. Pure functions: any thread.
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

bool IsNumeric(char32_t c);
bool IsPunctuation(char32_t c);     // ASCII punctuation, or category P in Unicode 8
bool IsControl(char32_t c);         // category C in Unicode 8, unassigned ones excepted
bool IsNonspacingMark(char32_t c);  // category Mn in Unicode 8
bool IsCombiningMark(char32_t c);   // category M in Unicode 9
bool IsIdeograph(char32_t c);       // as BERT counts them
// Of Unicode 9, where kana counts as Han, and U+30FC too; -1: a space, or of no script.
int ScriptOf(char32_t c);
void AppendLowercase(char32_t c, std::string* out);

// The size of the grapheme cluster at the start of `text` (not empty, valid UTF-8).
size_t GraphemeSize(std::string_view text);

// With the tables of Unicode 9, as in Hugging Face's tokenizers. `text` is valid UTF-8.
enum class NormalForm : unsigned char { kNfc, kNfd, kNfkc, kNfkd };
std::string NormalizeUnicode(NormalForm form, std::string_view text);

}  // namespace tactus::language
