// The secret that the members of a fleet share (--kv-secret-file): what their block keys come from, so that they can
// compare prefixes, and what authenticates a request of one to another. Pure functions, but for FleetGuard.
//
// A request carries "x-tactus-fleet: v1 SECONDS NONCE DIGEST MAC": SECONDS since the Unix epoch, NONCE 128 random bits,
// DIGEST of the body and MAC of method, path, SECONDS, NONCE and DIGEST, both SipHash-2-4-128 (a keyed pseudo-random
// function made for this), under two keys that are HMAC-SHA-256 of the secret. So a head is checked before its body is
// read, and without the secret none can be made or changed. A process takes each once, for as long as SECONDS are
// near, and none from before it began; another member has no means to see that a request was not meant for it. An
// answer that says yes carries a MAC over the request's NONCE, its status and body; refusals and streams carry none.
// Nothing is encrypted.
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
inline constexpr int64_t kFleetClockSkewS = 60;  // that members' clocks may be apart, and a request may be under way

struct FleetKeys {
  Hash128 blocks;    // IntakeLimits::secret
  Hash128 requests;  // of the MAC
  Hash128 bodies;    // of the DIGEST
};

// The file's bytes without a line end. kInvalidArgument (param kv-secret-file): not there, shorter than 16 bytes or
// longer than 4096, or open to others than its owner and group.
Result<std::string> ReadFleetSecret(const std::string& path);
FleetKeys FleetKeysOf(std::string_view secret);

// 32 hexadecimal digits, and back. kInvalidArgument: they are none.
std::string HexOf(const Hash128& bits);
Result<Hash128> BitsOf(std::string_view hex);

struct FleetRequest {
  std::string_view method, path, body;
};
// The header's value.
std::string SignFleetRequest(const FleetKeys& keys, const FleetRequest& request, int64_t now_s, const Hash128& nonce);
std::string SignFleetAnswer(const FleetKeys& keys, const Hash128& nonce, int http_status, std::string_view body);
// `header` null: there is none. kUnauthenticated.
Status CheckFleetAnswer(const FleetKeys& keys, const Hash128& nonce, int http_status, std::string_view body,
                        const std::string* header);

// Lets requests of members in, each once: first the head, then, where that has passed, the body that came with it. Any
// thread. kUnauthenticated says what is wrong, and nothing of the secret. What was signed before `began_s`, when this
// process could not yet note what it takes, is refused.
class FleetGuard {
 public:
  FleetGuard(const FleetKeys& keys, int64_t began_s) : keys_(keys), began_s_(began_s) {}
  // `header` null: there is none.
  Status CheckHead(std::string_view method, std::string_view path, const std::string* header, int64_t now_s);
  // The request's nonce, for the answer. `header` as it was.
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
  std::deque<std::pair<int64_t, Hash128>> order_;  // when they are forgotten
};

}  // namespace tactus
