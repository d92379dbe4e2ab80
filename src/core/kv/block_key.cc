#include "core/kv/block_key.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace tactus::core {
namespace {

// Domain tags: a root and a block never hash the same bytes.
constexpr uint64_t kRootTag = 0x746f6f72'73756361;
constexpr uint64_t kBlockTag = 0x6b636f6c'62207661;
constexpr size_t kHeaderBytes = sizeof(uint64_t) + sizeof(Hash128);
constexpr size_t kStackTokens = 256;

void AppendField(std::string_view field, std::string* out) {
  const uint64_t size = field.size();  // length first: ("a", "bc") and ("ab", "c") differ
  out->append(reinterpret_cast<const char*>(&size), sizeof(size));
  out->append(field);
}

void FillBlock(const Hash128& parent, std::span<const TokenId> tokens, char* out) {
  std::memcpy(out, &kBlockTag, sizeof(kBlockTag));
  std::memcpy(out + sizeof(kBlockTag), &parent, sizeof(parent));
  if (!tokens.empty()) std::memcpy(out + kHeaderBytes, tokens.data(), tokens.size_bytes());
}

}  // namespace

Hash128 RootKey(const Hash128& secret, std::string_view model, std::string_view adapter, std::string_view cache_salt) {
  std::string bytes(reinterpret_cast<const char*>(&kRootTag), sizeof(kRootTag));
  AppendField(model, &bytes);
  AppendField(adapter, &bytes);
  AppendField(cache_salt, &bytes);
  return SipHash128(secret, bytes.data(), bytes.size());
}

Hash128 BlockKey(const Hash128& secret, const Hash128& parent, std::span<const TokenId> tokens) {
  const size_t size = kHeaderBytes + tokens.size_bytes();
  if (tokens.size() <= kStackTokens) {  // every block size that the options allow: no allocation in the step loop
    std::array<char, kHeaderBytes + kStackTokens * sizeof(TokenId)> bytes;
    FillBlock(parent, tokens, bytes.data());
    return SipHash128(secret, bytes.data(), size);
  }
  std::string bytes(size, '\0');
  FillBlock(parent, tokens, bytes.data());
  return SipHash128(secret, bytes.data(), size);
}

void ExtendBlockKeys(const Hash128& secret, const Hash128& root, std::span<const TokenId> tokens, int32_t block_size,
                     std::vector<Hash128>* keys) {
  const auto b = static_cast<size_t>(block_size);
  for (size_t i = keys->size(); (i + 1) * b <= tokens.size(); ++i) {
    keys->push_back(BlockKey(secret, i == 0 ? root : keys->back(), tokens.subspan(i * b, b)));
  }
}

}  // namespace tactus::core
