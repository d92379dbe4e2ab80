#include "hub/file_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace tactus::hub {
namespace {

constexpr std::string_view kGguf = ".gguf";
constexpr size_t kPartDigits = 5;

int DigitsAt(std::string_view text, size_t at) {
  int number = 0;
  for (size_t i = at; i < at + kPartDigits; ++i) {
    if (i >= text.size() || std::isdigit(static_cast<unsigned char>(text[i])) == 0) return -1;
    number = number * 10 + (text[i] - '0');
  }
  return number;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

}  // namespace

std::string Lower(std::string_view text) {
  std::string low(text);
  std::transform(low.begin(), low.end(), low.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return low;
}

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) { return HexDigit(c) >= 0; });
}

bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > 1024) return false;
  const bool plain =
      std::none_of(path.begin(), path.end(), [](unsigned char c) { return c < ' ' || c == 0x7f || c == '\\'; });
  if (!plain) return false;
  for (size_t from = 0; from <= path.size();) {
    const size_t slash = std::min(path.find('/', from), path.size());
    const std::string_view part = path.substr(from, slash - from);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    from = slash + 1;
  }
  return true;
}

std::string_view FileName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string FileOfUrl(std::string_view url) {
  const std::string_view name = FileName(url.substr(0, url.find_first_of("?#")));
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool encoded =
        name[i] == '%' && i + 2 < name.size() && HexDigit(name[i + 1]) >= 0 && HexDigit(name[i + 2]) >= 0;
    text += encoded ? static_cast<char>(HexDigit(name[i + 1]) * 16 + HexDigit(name[i + 2])) : name[i];
    if (encoded) i += 2;
  }
  return text;
}

std::string UrlQuoted(std::string_view text, bool keep_slashes) {
  std::string quoted;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte < 0x80 && std::isalnum(byte) != 0) || c == '-' || c == '_' || c == '.' || c == '~';
    quoted += plain || (keep_slashes && c == '/') ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return quoted;
}

std::optional<SplitPart> SplitPartOf(std::string_view path) {
  constexpr std::string_view kOf = "-of-";
  const size_t tail = 1 + kPartDigits + kOf.size() + kPartDigits + kGguf.size();
  if (path.size() <= tail || Lower(path.substr(path.size() - kGguf.size())) != kGguf) return std::nullopt;
  const size_t dash = path.size() - tail;
  SplitPart split{std::string(path.substr(0, dash)), DigitsAt(path, dash + 1),
                  DigitsAt(path, dash + 1 + kPartDigits + kOf.size())};
  if (path[dash] != '-' || path.substr(dash + 1 + kPartDigits, kOf.size()) != kOf) return std::nullopt;
  if (split.part < 1 || split.parts < split.part) return std::nullopt;
  return split;
}

std::string NameOfPart(const SplitPart& split, int part) {
  return fmt::format("{}-{:05}-of-{:05}{}", split.stem, part, split.parts, kGguf);
}

}  // namespace tactus::hub
