#include "language/text/jinja/unicode.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

namespace tactus::language::jinja {

uint32_t NextCodePoint(std::string_view text, size_t* position) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[k]); };
  const uint32_t first = byte(*position);
  const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (length == 1 || *position + length > text.size()) {
    ++*position;
    return first;
  }
  uint32_t c = first & (0xFFu >> (length + 1));
  for (size_t k = 1; k < length; ++k) c = (c << 6) | (byte(*position + k) & 0x3Fu);
  *position += length;
  return c;
}

size_t CodePointCount(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t offset = 0;
  while (index > 0 && offset < text.size()) {
    ++offset;
    while (offset < text.size() && (static_cast<uint8_t>(text[offset]) & 0xC0) == 0x80) ++offset;
    --index;
  }
  return offset;
}

bool IsSpace(uint32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsPrintable(uint32_t c) {
  if (c < 0x7F) return c >= 32;
  constexpr uint32_t kHidden = U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CS_MASK | U_GC_CO_MASK | U_GC_CN_MASK | U_GC_Z_MASK;
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & kHidden) == 0;
}

bool IsDigit(uint32_t c) {
  const int type = u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}
bool IsIdentifierStart(uint32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_XID_START);
}
bool IsIdentifierPart(uint32_t c) {
  if (c < 0x80) return IsIdentifierStart(c) || (c >= '0' && c <= '9');
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_XID_CONTINUE);
}

namespace {
bool IsAscii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<uint8_t>(c) >= 0x80) return false;
  }
  return true;
}
icu::UnicodeString Decode(std::string_view text) {
  return icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}
std::string Encode(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}
char AsciiLower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}
char AsciiUpper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
}

std::string TitleCase(std::string_view character) {  // of one code point, with full mappings ("ß" -> "Ss")
  return Encode(
      Decode(character).toTitle(nullptr, icu::Locale::getRoot(),
                                U_TITLECASE_NO_LOWERCASE | U_TITLECASE_NO_BREAK_ADJUSTMENT | U_TITLECASE_WHOLE_STRING));
}
bool IsCased(uint32_t c) {
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASED);
}
}  // namespace

std::string ToLower(std::string_view text) {
  if (IsAscii(text)) {
    std::string out(text);
    for (char& c : out) c = AsciiLower(c);
    return out;
  }
  return Encode(Decode(text).toLower(icu::Locale::getRoot()));
}

std::string ToUpper(std::string_view text) {
  if (IsAscii(text)) {
    std::string out(text);
    for (char& c : out) c = AsciiUpper(c);
    return out;
  }
  return Encode(Decode(text).toUpper(icu::Locale::getRoot()));
}

std::string Capitalize(std::string_view text) {
  if (text.empty()) return {};
  size_t first = 0;
  NextCodePoint(text, &first);
  // Lower the whole text, so that a final sigma follows letters, then replace the first letter.
  const std::string first_lower = ToLower(text.substr(0, first));
  return TitleCase(text.substr(0, first)) + ToLower(text).substr(first_lower.size());
}

std::string Title(std::string_view text) {
  const std::string lower = ToLower(text);
  std::string out;
  bool in_word = false;
  for (size_t k = 0; k < text.size();) {
    const size_t start = k;
    const uint32_t c = NextCodePoint(text, &k);
    const std::string_view character = text.substr(start, k - start);
    out += in_word ? ToLower(character) : TitleCase(character);
    in_word = IsCased(c);
  }
  return out;
}

std::string_view Strip(std::string_view text, const std::string_view* chars, bool left, bool right) {
  const auto strips = [&](std::string_view character) {
    if (chars != nullptr) return chars->find(character) != std::string_view::npos;
    size_t k = 0;
    return IsSpace(NextCodePoint(character, &k));
  };
  while (left && !text.empty()) {
    size_t end = 0;
    NextCodePoint(text, &end);
    if (!strips(text.substr(0, end))) break;
    text.remove_prefix(end);
  }
  while (right && !text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
    if (!strips(text.substr(start))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t line = 0;
  for (size_t k = 0; k < text.size();) {
    const size_t start = k;
    const uint32_t c = NextCodePoint(text, &k);
    const bool breaks = (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    if (c == '\r' && k < text.size() && text[k] == '\n') ++k;
    lines.push_back(text.substr(line, (keep_ends ? k : start) - line));
    line = k;
  }
  if (line < text.size()) lines.push_back(text.substr(line));
  return lines;
}

}  // namespace tactus::language::jinja
