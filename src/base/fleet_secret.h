// The secret that the members of a fleet share (--kv-secret-file). Block keys are derived from it, so that members can
// compare prefixes, and it authenticates requests between members. Pure functions, except FleetGuard.
//
// A request carries "x-tactus-fleet: v1 SECONDS NONCE DIGEST MAC": SECONDS since the Unix epoch, NONCE 128 random bits,
// DIGEST of the body and MAC of method, path, SECONDS, NONCE and DIGEST, both SipHash-2-4-128 (a keyed pseudo-random
// function made for this), under two keys that are HMAC-SHA-256 of the secret. So a head is checked before its body is
// read, and a request cannot be forged or changed without the secret. A process accepts each request once, only while
// SECONDS are near, and none from before its own start; a member cannot detect that a request was meant for another
// member. A successful answer carries a MAC over the request's NONCE, the status and the body; errors and streams carry
// none. Nothing is encrypted.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/hash.h"
#include "tactus/status.h"

namespace tactus {

inline constexpr const char* kFleetHeader = "x-tactus-fleet";
inline constexpr size_t kShortestFleetSecret = 16, kLongestFleetSecret = 4096;  // bytes
inline constexpr int64_t kFleetClockSkewS = 60;  // tolerance for clock differences and for time in transit

struct FleetKeys {
  Hash128 blocks;    // IntakeLimits::secret
  Hash128 requests;  // key of the MAC
  Hash128 bodies;    // key of the DIGEST
};

// The file's bytes without a final line break. kInvalidArgument (param kv-secret-file): missing, shorter than 16 bytes
// or longer than 4096, or accessible to users other than its owner and group.
Result<std::string> ReadFleetSecret(const std::string& path);
FleetKeys FleetKeysOf(std::string_view secret);

// Conversion to and from 32 hexadecimal digits. kInvalidArgument: not such digits.
std::string HexOf(const Hash128& bits);
Result<Hash128> BitsOf(std::string_view hex);

struct FleetRequest {
  std::string_view method, path, body;
};
// The header's value.
std::string SignFleetRequest(const FleetKeys& keys, const FleetRequest& request, int64_t now_s, const Hash128& nonce);
std::string SignFleetAnswer(const FleetKeys& keys, const Hash128& nonce, int http_status, std::string_view body);
// `header` null: missing. kUnauthenticated.
Status CheckFleetAnswer(const FleetKeys& keys, const Hash128& nonce, int http_status, std::string_view body,
                        const std::string* header);

// Authenticates requests of members, each once: first the head, then the body. Any thread. The message of
// kUnauthenticated names the error and reveals nothing of the secret. Requests signed before `began_s`, the process's
// start, are refused, because their nonces may have been used with an earlier process.
class FleetGuard {
 public:
  FleetGuard(const FleetKeys& keys, int64_t began_s) : keys_(keys), began_s_(began_s) {}
  // `header` null: missing.
  Status CheckHead(std::string_view method, std::string_view path, const std::string* header, int64_t now_s);
  // Returns the request's nonce, for the answer. `header`: as for CheckHead.
  Result<Hash128> CheckBody(const std::string* header, std::string_view body) const;

 private:
  static constexpr size_t kMostSeen = size_t{1} << 17;
  struct NonceHash {
    size_t operator()(const Hash128& nonce) const { return nonce.low; }
  };

  const FleetKeys keys_;
  const int64_t began_s_;
  std::mutex mutex_;
  std::unordered_set<Hash128, NonceHash> seen_;
  std::deque<std::pair<int64_t, Hash128>> order_;  // expiry time and nonce
};

}  // namespace tactus
