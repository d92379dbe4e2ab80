#include "base/fleet_secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "base/printable.h"
#include "base/sha256.h"

namespace tactus {
namespace {

constexpr const char* kFlag = "kv-secret-file";
constexpr std::string_view kVersion = "v1";

Hash128 KeyOf(std::string_view secret, std::string_view purpose) {
  const Sha256Digest digest = HmacSha256(secret, purpose);
  Hash128 key;
  std::memcpy(&key, digest.data(), sizeof(key));
  return key;
}

// The MAC of the parts; each has its length before it, so that different requests have different texts.
Hash128 Mac(const FleetKeys& keys, std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += fmt::format("{}:{}", part.size(), part);
  return SipHash128(keys.requests, text.data(), text.size());
}

Hash128 DigestOf(const FleetKeys& keys, std::string_view body) {
  return SipHash128(keys.bodies, body.data(), body.size());
}

// Constant-time comparison.
bool Equal(const Hash128& a, const Hash128& b) {
  return ((a.low ^ b.low) | (a.high ^ b.high)) == 0;
}

Hash128 AnswerMac(const FleetKeys& keys, const Hash128& nonce, int http_status, std::string_view body) {
  return Mac(keys, {"answer", HexOf(nonce), std::to_string(http_status), HexOf(DigestOf(keys, body))});
}

Status Denied(const std::string& why) {
  return Status(StatusCode::kUnauthenticated, fmt::format("{}: {}", kFleetHeader, why));
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t space = text.find(' ');
    if (space != 0) words.push_back(text.substr(0, space));
    if (space == std::string_view::npos) break;
    text.remove_prefix(space + 1);
  }
  return words;
}

class File {
 public:
  explicit File(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

Result<std::string> ReadFleetSecret(const std::string& path) {
  const auto bad = [&](const std::string& what) {
    return InvalidArgument(fmt::format("--kv-secret-file '{}': {}", Printable(path), what), kFlag);
  };
  const File file(path);
  struct stat about = {};
  if (file.fd() < 0 || fstat(file.fd(), &about) != 0) return bad(std::strerror(errno));
  if (!S_ISREG(about.st_mode)) return bad("not a regular file");
  if ((about.st_mode & S_IRWXO) != 0) {
    return bad(
        fmt::format("every user of this machine may open it (mode {:04o}); only its owner should, as after "
                    "'chmod 600'",
                    about.st_mode & 07777));
  }
  std::string secret(kLongestFleetSecret + 2, '\0');
  size_t have = 0;
  for (ssize_t n = 1; n > 0 && have < secret.size(); have += static_cast<size_t>(std::max<ssize_t>(n, 0))) {
    n = read(file.fd(), secret.data() + have, secret.size() - have);
    if (n < 0) return bad(std::strerror(errno));
  }
  secret.resize(have);
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  const bool longer = secret.size() > kLongestFleetSecret;
  if (longer || secret.size() < kShortestFleetSecret) {
    return bad(
        fmt::format("it has {} {} bytes; give {} to {} that cannot be guessed, such as those of "
                    "'head -c 32 /dev/urandom | base64'",
                    longer ? "more than" : "only", longer ? kLongestFleetSecret : secret.size(), kShortestFleetSecret,
                    kLongestFleetSecret));
  }
  return secret;
}

FleetKeys FleetKeysOf(std::string_view secret) {
  return {.blocks = KeyOf(secret, "tactus kv block keys"),
          .requests = KeyOf(secret, "tactus fleet requests"),
          .bodies = KeyOf(secret, "tactus fleet bodies")};
}

std::string HexOf(const Hash128& bits) {
  return fmt::format("{:016x}{:016x}", bits.high, bits.low);
}

Result<Hash128> BitsOf(std::string_view hex) {
  Hash128 bits;
  const auto half = [](std::string_view digits, uint64_t* value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *value, 16);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  if (hex.size() != 32 || !half(hex.substr(0, 16), &bits.high) || !half(hex.substr(16), &bits.low))
    return InvalidArgument("not 32 hexadecimal digits");
  return bits;
}

std::string SignFleetRequest(const FleetKeys& keys, const FleetRequest& request, int64_t now_s, const Hash128& nonce) {
  const std::string seconds = std::to_string(now_s), drawn = HexOf(nonce), digest = HexOf(DigestOf(keys, request.body));
  const Hash128 mac = Mac(keys, {"request", request.method, request.path, seconds, drawn, digest});
  return fmt::format("{} {} {} {} {}", kVersion, seconds, drawn, digest, HexOf(mac));
}

std::string SignFleetAnswer(const FleetKeys& keys, const Hash128& nonce, int http_status, std::string_view body) {
  return fmt::format("{} {}", kVersion, HexOf(AnswerMac(keys, nonce, http_status, body)));
}

Status CheckFleetAnswer(const FleetKeys& keys, const Hash128& nonce, int http_status, std::string_view body,
                        const std::string* header) {
  if (header == nullptr)
    return Denied(fmt::format("missing in the answer ({}): the sender is not a member", http_status));
  const auto words = Words(*header);
  const auto mac = words.size() == 2 && words[0] == kVersion ? BitsOf(words[1]) : Result<Hash128>(Denied("malformed"));
  if (!mac.ok() || !Equal(*mac, AnswerMac(keys, nonce, http_status, body)))
    return Denied("the answer is not signed with this fleet's secret");
  return Status();
}

Status FleetGuard::CheckHead(std::string_view method, std::string_view path, const std::string* header, int64_t now_s) {
  if (header == nullptr)
    return Denied(
        "missing; only members of the fleet, which have its secret (--kv-secret-file), may send this request");
  const auto words = Words(*header);
  int64_t at_s = 0;
  if (words.size() != 5 || words[0] != kVersion ||
      std::from_chars(words[1].data(), words[1].data() + words[1].size(), at_s).ec != std::errc()) {
    return Denied("malformed; give 'v1 SECONDS NONCE DIGEST MAC'");
  }
  const auto nonce = BitsOf(words[2]), mac = BitsOf(words[4]);
  if (!nonce.ok() || !mac.ok() || !BitsOf(words[3]).ok())
    return Denied("malformed; NONCE, DIGEST and MAC are 32 hexadecimal digits each");
  if (!Equal(*mac, Mac(keys_, {"request", method, path, words[1], words[2], words[3]})))
    return Denied("the request is not signed with this fleet's secret; give all members the same --kv-secret-file");
  if (at_s < now_s - kFleetClockSkewS || at_s > now_s + kFleetClockSkewS) {
    return Denied(fmt::format("it was signed {} s away from this machine's time, the limit is {} s; set the clocks",
                              at_s > now_s ? at_s - now_s : now_s - at_s, kFleetClockSkewS));
  }
  if (at_s < began_s_) {
    return Denied(
        fmt::format("it was signed {} s before this process began, by this machine's time; sign it again, or "
                    "set the clocks",
                    began_s_ - at_s));
  }
  std::lock_guard lock(mutex_);
  for (; !order_.empty() && order_.front().first < now_s; order_.pop_front()) seen_.erase(order_.front().second);
  if (seen_.size() >= kMostSeen) return Denied("too many requests within two minutes");
  if (!seen_.insert(*nonce).second) return Denied("this request has already been used");
  order_.emplace_back(now_s + 2 * kFleetClockSkewS + 1, *nonce);
  return Status();
}

Result<Hash128> FleetGuard::CheckBody(const std::string* header, std::string_view body) const {
  const auto words = header == nullptr ? std::vector<std::string_view>() : Words(*header);
  if (words.size() != 5) return Denied("missing or malformed");
  const auto digest = BitsOf(words[3]);
  if (!digest.ok() || !Equal(*digest, DigestOf(keys_, body)))
    return Denied("the body is not the one that the request was signed with");
  return BitsOf(words[2]);
}

}  // namespace tactus
