#include "base/one_line.h"

#include "base/json_text.h"

namespace tactus {

std::string OneLine(std::string_view text, size_t most_bytes) {
  std::string line = json_text::ReplaceInvalidUtf8(text.substr(0, most_bytes));
  for (size_t i = 0; i < line.size(); ++i) {
    const auto byte = static_cast<unsigned char>(line[i]);
    const auto next = static_cast<unsigned char>(i + 1 < line.size() ? line[i + 1] : 0);
    if (byte < 0x20 || byte == 0x7f) line[i] = ' ';
    if (byte == 0xc2 && next < 0xa0) line[i] = line[i + 1] = ' ';  // U+0080 to U+009F
  }
  return text.size() > most_bytes ? line + "..." : line;
}

}  // namespace tactus
