// The text files of data/cost in the binary (generated at build time by cmake/EmbedText.cmake).
#pragma once

#include <span>
#include <string_view>

namespace tactus::cost {

struct EmbeddedFile {
  std::string_view name;  // "devices.json", "h100.cost.json"
  std::string_view text;
};

std::span<const EmbeddedFile> EmbeddedFiles();

inline std::string_view EmbeddedText(std::string_view name) {  // empty: none
  for (const EmbeddedFile& f : EmbeddedFiles()) {
    if (f.name == name) return f.text;
  }
  return {};
}

}  // namespace tactus::cost
