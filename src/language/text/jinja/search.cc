#include "language/text/jinja/search.h"

#include <cstring>

namespace tactus::language::jinja {

size_t FindText(Meter& meter, std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const std::string_view rest = text.substr(from);
  // Charged by pieces, so that it can be stopped. memmem is linear for long parts; for short ones each position may
  // cost a comparison of the whole part.
  constexpr size_t kPieceBytes = size_t{1} << 20;
  constexpr size_t kLongestShortPart = 256;
  const size_t factor = 1 + (part.size() <= kLongestShortPart ? part.size() / 32 : 2);
  for (size_t at = 0; at + part.size() <= rest.size(); at += kPieceBytes) {
    const std::string_view piece = rest.substr(at, kPieceBytes + part.size() - 1);
    const void* found = memmem(piece.data(), piece.size(), part.data(), part.size());
    const size_t end =
        found == nullptr ? piece.size() : static_cast<size_t>(static_cast<const char*>(found) - piece.data());
    meter.ChargeText(end * factor + part.size());
    if (found != nullptr) return from + at + end;
  }
  return std::string_view::npos;
}

size_t RightFindText(Meter& meter, std::string_view text, std::string_view part) {
  if (part.size() > text.size()) return std::string_view::npos;
  if (part.empty()) return text.size();
  size_t looked_at = 0;
  for (size_t at = text.size() - part.size() + 1; at-- > 0;) {
    if (++looked_at % 4096 == 0) meter.ChargeText(4096);
    if (text[at] != part[0]) continue;
    meter.ChargeText(part.size());
    if (std::memcmp(text.data() + at, part.data(), part.size()) == 0) return at;
  }
  return std::string_view::npos;
}

}  // namespace tactus::language::jinja
