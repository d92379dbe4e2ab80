#include "language/text/base64.h"

#include <cstdint>

namespace tactus::language {

bool DecodeBase64(std::string_view text, std::string* bytes) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  bytes->clear();
  bytes->reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int size = 0;
  for (const char c : text) {
    const size_t digit = kAlphabet.find(c);
    if (digit == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    size += 6;
    if (size < 8) continue;
    size -= 8;
    bytes->push_back(static_cast<char>(bits >> size & 0xFF));
  }
  return size < 6;
}

}  // namespace tactus::language
