#include "language/text/byte_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace tactus::language {
namespace {

struct ByteAlphabet {
  std::array<char32_t, 256> character;
  std::array<int16_t, kByteAlphabetEnd> byte;  // -1: not in the alphabet
  ByteAlphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = prints ? b : next++;
      byte[character[b]] = static_cast<int16_t>(b);
    }
  }
};

const ByteAlphabet& Alphabet() {
  static const ByteAlphabet kAlphabet;
  return kAlphabet;
}

constexpr std::string_view kHex = "0123456789ABCDEF";

}  // namespace

char32_t CharacterOfByte(uint8_t byte) {
  return Alphabet().character[byte];
}

std::string SpellBytes(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 2);
  for (const char c : bytes) AppendUtf8(CharacterOfByte(static_cast<uint8_t>(c)), &text);
  return text;
}

bool BytesOfSpelling(std::string_view text, std::string* out) {
  out->clear();
  while (!text.empty()) {
    const Utf8Step step = DecodeUtf8(text);
    if (step.state != Utf8Step::State::kValid || step.code_point >= kByteAlphabetEnd) return false;
    const int16_t byte = Alphabet().byte[step.code_point];
    if (byte < 0) return false;
    out->push_back(static_cast<char>(byte));
    text.remove_prefix(step.size);
  }
  return true;
}

int ByteOfFallbackToken(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = digit(text[3]), low = digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string FallbackToken(uint8_t byte) {
  return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

}  // namespace tactus::language
