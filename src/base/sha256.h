// SHA-256 (FIPS 180-4) and its HMAC (RFC 2104), to derive keys from a secret of any length. Pure functions. Large data
// is authenticated by SipHash under such a key (base/hash.h), which is many times faster.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tactus {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest Sha256(std::string_view data);
Sha256Digest HmacSha256(std::string_view key, std::string_view data);

}  // namespace tactus
