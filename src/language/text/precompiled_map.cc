#include "language/text/precompiled_map.h"

namespace tactus::language {
namespace {

uint32_t ReadUint32(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << 8 * i;
  return value;
}

// One unit of the double array, as the darts-clone library packs it: a node's byte, whether a text ends there, and the
// distance to its children; or the value of a text.
size_t Offset(uint32_t unit) {
  return static_cast<size_t>(unit >> 10) << ((unit & 1u << 9) >> 6);
}
uint32_t Label(uint32_t unit) {
  return unit & (1u << 31 | 0xFF);
}
bool HasLeaf(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}

}  // namespace

Result<PrecompiledMap> PrecompiledMap::Read(std::string_view bytes) {
  PrecompiledMap map;
  if (bytes.empty()) return map;
  const size_t trie_bytes = bytes.size() < 4 ? 0 : ReadUint32(bytes);
  if (bytes.size() < 4 || trie_bytes > bytes.size() - 4 || trie_bytes % 4 != 0) {
    return DataLoss("the precompiled map of " + std::to_string(bytes.size()) + " bytes names a trie of " +
                    std::to_string(trie_bytes));
  }
  for (size_t at = 4; at < 4 + trie_bytes; at += 4) map.units_.push_back(ReadUint32(bytes.substr(at, 4)));
  map.replacements_ = bytes.substr(4 + trie_bytes);
  return map;
}

bool PrecompiledMap::Find(std::string_view text, bool longest, std::string_view* replacement, size_t* size) const {
  if (units_.empty()) return false;
  size_t node = Offset(units_[0]);
  size_t value = std::string::npos;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || Label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= Offset(unit);
    if (node >= units_.size()) break;
    if (!HasLeaf(unit)) continue;
    value = units_[node] & ~(1u << 31);
    *size = i + 1;
    if (!longest) break;
  }
  if (value >= replacements_.size()) return false;
  *replacement = std::string_view(replacements_).substr(value);
  *replacement = replacement->substr(0, replacement->find('\0'));
  return true;
}

}  // namespace tactus::language
