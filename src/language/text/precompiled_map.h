// The map of a sentencepiece normalizer (precompiled_charsmap): texts and what replaces them, in a double-array trie.
// The bytes are hostile input: each look-up checks its places. Immutable once read: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tactus/status.h"

namespace tactus::language {

class PrecompiledMap {
 public:
  // kDataLoss: the sizes in the bytes contradict each other.
  static Result<PrecompiledMap> Read(std::string_view bytes);
  // Whether the map has a text that `text` begins with: what replaces the longest or the shortest one, and its size.
  bool Find(std::string_view text, bool longest, std::string_view* replacement, size_t* size) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends in a zero byte
};

}  // namespace tactus::language
