// Names of files in repositories and URLs. A repository is hostile input: its paths become paths of this machine only
// after IsSafePath. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tactus::hub {

std::string Lower(std::string_view text);  // ASCII
bool IsHex(std::string_view text, size_t digits);
// "a/b.json": relative, without empty parts, "." and "..", backslashes and control characters.
bool IsSafePath(std::string_view path);
// The part after the last '/'.
std::string_view FileName(std::string_view path);
// The name of the file that a URL ends in, without query; percent-encoded characters decoded.
std::string FileOfUrl(std::string_view url);
// Percent-encodes everything but letters, digits and "-_.~", and '/' if `keep_slashes`.
std::string UrlQuoted(std::string_view text, bool keep_slashes);

// The place of a file in a GGUF that is split: "model-00002-of-00003.gguf" is part 2 of 3 of "model".
struct SplitPart {
  std::string stem;
  int part = 1, parts = 1;
};
// Nothing: the file's name does not end so.
std::optional<SplitPart> SplitPartOf(std::string_view path);
// The name of another part of the same file.
std::string NameOfPart(const SplitPart& split, int part);

}  // namespace tactus::hub
