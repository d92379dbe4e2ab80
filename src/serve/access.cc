#include "serve/access.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>

#include "base/check.h"

namespace tactus::serve {

Hash128 RandomBits() {
  Hash128 bits;
  TACTUS_CHECK(getrandom(&bits, sizeof bits, 0) == static_cast<ssize_t>(sizeof bits));  // never short below 256 bytes
  return bits;
}

std::string RandomId() {
  const Hash128 bits = RandomBits();
  return fmt::format("{:016x}{:016x}", bits.high, bits.low);
}

ApiKeys::ApiKeys(const std::vector<std::string>& keys) : secret_(RandomBits()) {
  for (const std::string& key : keys) {
    const Hash128 digest = SipHash128(secret_, key.data(), key.size());
    if (!key.empty() && std::find(digests_.begin(), digests_.end(), digest) == digests_.end()) digests_.push_back(digest);
  }
}

std::optional<size_t> ApiKeys::Find(const std::string* authorization) const {
  if (authorization == nullptr) return std::nullopt;
  constexpr std::string_view kScheme = "Bearer ";
  std::string_view token = *authorization;
  if (token.size() < kScheme.size() || !http::EqualsIgnoreCase(token.substr(0, kScheme.size()), kScheme)) return std::nullopt;
  token.remove_prefix(kScheme.size());
  // Keyed digests have one length and tell nothing about how much of a wrong key was right.
  const Hash128 digest = SipHash128(secret_, token.data(), token.size());
  uint64_t found = 0;  // 1 + the key's index, without a branch
  for (size_t i = 0; i < digests_.size(); ++i) {
    const uint64_t difference = (digests_[i].low ^ digest.low) | (digests_[i].high ^ digest.high);
    found |= (i + 1) * static_cast<uint64_t>(difference == 0);
  }
  return found == 0 ? std::nullopt : std::optional<size_t>(found - 1);
}

std::string ApiKeys::Salt(size_t key) const {
  constexpr std::string_view kUse = "prefix cache";
  const Hash128 salt = SipHash128(digests_[key], kUse.data(), kUse.size());
  return fmt::format("{:016x}{:016x}", salt.high, salt.low);
}

bool ValidRequestId(std::string_view id) {
  return !id.empty() && id.size() <= 256 &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

void Origins::AppendHeaders(const http::HttpRequest& request, bool preflight, http::Headers* headers) const {
  const std::string* origin = request.Find("Origin");
  if (origin == nullptr || allowed_.empty()) return;
  const bool any = std::find(allowed_.begin(), allowed_.end(), "*") != allowed_.end();
  if (!any && std::find(allowed_.begin(), allowed_.end(), *origin) == allowed_.end()) return;
  headers->emplace_back("Access-Control-Allow-Origin", any ? "*" : *origin);
  if (!any) headers->emplace_back("Vary", "Origin");
  headers->emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  if (!preflight) return;
  headers->emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
  const std::string* wanted = request.Find("Access-Control-Request-Headers");
  headers->emplace_back("Access-Control-Allow-Headers", wanted ? *wanted : "authorization, content-type, x-request-id");
  headers->emplace_back("Access-Control-Max-Age", "600");
}

}  // namespace tactus::serve
