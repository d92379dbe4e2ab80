#include "base/printable.h"

namespace tactus {

std::string Printable(std::string_view text) {
  constexpr size_t kMax = 80;
  std::string out;
  for (const char c : text.substr(0, kMax)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  if (text.size() > kMax) out += "...";
  return out;
}

}  // namespace tactus
