#include "base/utf8.h"

namespace tactus {

Utf8Step DecodeUtf8(std::string_view text) {
  using State = Utf8Step::State;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {State::kValid, 1, lead};
  size_t size = 0;
  char32_t code = 0;
  unsigned low = 0x80, high = 0xBF;  // bounds of the second byte: they exclude overlong forms and surrogates
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2, code = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    size = 3, code = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4, code = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {State::kInvalid, 1, kReplacementCharacter};
  }
  for (size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {State::kIncomplete, i, kReplacementCharacter};
    if (byte(i) < low || byte(i) > high) return {State::kInvalid, i, kReplacementCharacter};
    code = code << 6 | (byte(i) & 0x3F);
    low = 0x80, high = 0xBF;
  }
  return {State::kValid, size, code};
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = DecodeUtf8(text);
    if (step.state != Utf8Step::State::kValid) return false;
    text.remove_prefix(step.size);
  }
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = DecodeUtf8(text);
    if (step.state == Utf8Step::State::kValid) {
      out.append(text.substr(0, step.size));
    } else {
      AppendUtf8(kReplacementCharacter, &out);
    }
    text.remove_prefix(step.size);
  }
  return out;
}

size_t CompleteUtf8Prefix(std::string_view text) {
  // A character has at most three bytes before its last one.
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t at = text.size() - back;
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
    return DecodeUtf8(text.substr(at)).state == Utf8Step::State::kIncomplete ? at : text.size();
  }
  return text.size();
}

void AppendUtf8(char32_t c, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

}  // namespace tactus
