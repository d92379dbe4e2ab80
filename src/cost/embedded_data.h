// The text files of data/cost, inside the binary (generated at build time by cmake/EmbedText.cmake).
#pragma once

#include <span>
#include <string_view>

namespace tactus::cost {

struct EmbeddedFile {
  std::string_view name;  // "devices.txt", "h100.cost"
  std::string_view text;
};

std::span<const EmbeddedFile> EmbeddedFiles();

}  // namespace tactus::cost
