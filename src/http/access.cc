#include "http/access.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/printable.h"
#include "base/service_class.h"
#include "base/sha256.h"
#include "base/system_random.h"
#include "http/head_check.h"

namespace tactus::http {

Hash128 RandomBits() {
  const auto bits = SystemRandom();  // every engine reads it at start, so it does not fail later
  TACTUS_CHECK_MSG(bits.ok(), bits.status().message());
  return *bits;
}

std::string RandomId() {
  const Hash128 bits = RandomBits();
  return fmt::format("{:016x}{:016x}", bits.high, bits.low);
}

namespace {

Status CheckHeaderValue(const std::string& option, const std::string& which, const std::string& key) {
  const auto bad =
      std::find_if(key.begin(), key.end(), [](char c) { return static_cast<unsigned char>(c) <= 0x20 || c == 0x7f; });
  if (bad == key.end()) return Status();
  return InvalidArgument(fmt::format("{} has white space or a control character (byte {}), which no client can send in "
                                     "a header; give one without",
                                     which, bad - key.begin() + 1),
                         option);
}

}  // namespace

Status CheckKey(const std::string& option, const std::string& key) {
  const std::string flag = "--" + option;
  if (key.empty())
    return InvalidArgument(flag + " is empty: it would guard nothing; give a key or leave it out", option);
  return CheckHeaderValue(option, flag, key);
}

Status CheckApiKeys(const std::vector<std::string>& keys) {
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string which = keys.size() == 1 ? "--api-key" : fmt::format("--api-key: number {}", i + 1);
    if (keys[i].empty()) {
      return InvalidArgument(which +
                                 " is empty: it would guard nothing; give a key, or leave out --api-key, "
                                 "TACTUS_API_KEY and the file's api-key to serve all clients",
                             "api-key");
    }
    TACTUS_RETURN_IF_ERROR(CheckHeaderValue("api-key", which, keys[i]));
  }
  return Status();
}

namespace {

constexpr std::string_view kNoClass = "none";  // in --api-key-class

}  // namespace

Status CheckBodyLimits(int64_t one, int64_t all) {
  if (all >= one) return Status();
  return InvalidArgument(
      fmt::format("--max-body-total: {} bytes are less than the {} of --max-body; give at least {}", all, one, one),
      "max-body-total");
}

Status CheckKeyClasses(const std::vector<std::string>& keys, const std::vector<std::string>& classes,
                       const std::vector<std::string>& declared) {
  if (classes.empty()) return Status();
  if (classes.size() != keys.size()) {
    return InvalidArgument(fmt::format("--api-key-class: {} classes for {} keys; give one for each --api-key, in their "
                                       "order, and none for a key without",
                                       classes.size(), keys.size()),
                           "api-key-class");
  }
  TACTUS_ASSIGN_OR_RETURN(const std::vector<ServiceClass> known, ParseServiceClasses(declared));
  for (const std::string& name : classes) {
    if (name == kNoClass || FindServiceClass(known, name) != 0) continue;
    return InvalidArgument(
        fmt::format("--api-key-class: '{}' is declared by no --slo-class; declare it, such as --slo-class {}:ttft=1s",
                    Printable(name), Printable(name)),
        "api-key-class");
  }
  return Status();
}

namespace {

// The salt of a key: in a fleet derived from the fleet's digest of it, because other members see salts; else from the
// key alone, so that prompts on disk belong to the same key after a restart.
std::string SaltOf(const std::string& key, const std::optional<Hash128>& fleet_digest) {
  constexpr std::string_view kUse = "prefix cache";
  Hash128 salt;
  if (fleet_digest) {
    salt = SipHash128(*fleet_digest, kUse.data(), kUse.size());
  } else {
    const Sha256Digest digest = HmacSha256(key, kUse);
    std::memcpy(&salt, digest.data(), sizeof(salt));
  }
  return fmt::format("{:016x}{:016x}", salt.high, salt.low);
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<std::string>& keys, const std::vector<std::string>& classes,
                 const std::optional<FleetKeys>& fleet)
    : secret_(fleet ? fleet->blocks : RandomBits()), fleet_(fleet.has_value()) {
  Replace(keys, classes);
}

void ApiKeys::Replace(const std::vector<std::string>& keys, const std::vector<std::string>& classes) {
  auto next = std::make_shared<Table>(*table());
  next->matches.assign(next->digests.size(), 0);
  next->valid = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].empty()) continue;
    const Hash128 digest = SipHash128(secret_, keys[i].data(), keys[i].size());
    const auto at =
        static_cast<size_t>(std::find(next->digests.begin(), next->digests.end(), digest) - next->digests.begin());
    if (at == next->digests.size()) {
      next->digests.push_back(digest);
      next->matches.push_back(0);
      next->salts.push_back(SaltOf(keys[i], fleet_ ? std::optional(digest) : std::nullopt));
      next->classes.emplace_back();
    }
    if (next->matches[at] == 1) continue;  // repeated: its first class counts
    next->matches[at] = 1;
    next->classes[at] = i < classes.size() && classes[i] != kNoClass ? classes[i] : "";
    ++next->valid;
  }
  std::lock_guard lock(mutex_);
  table_ = std::move(next);
}

std::string KeyName(size_t key) {
  return fmt::format("key {}", key + 1);
}

std::optional<size_t> ApiKeys::Find(const std::string* authorization) const {
  if (authorization == nullptr) return std::nullopt;
  constexpr std::string_view kScheme = "Bearer ";
  std::string_view token = *authorization;
  if (token.size() < kScheme.size() || !EqualsIgnoreCase(token.substr(0, kScheme.size()), kScheme)) return std::nullopt;
  token.remove_prefix(kScheme.size());
  return FindToken(token);
}

std::optional<size_t> ApiKeys::Find(const HttpRequest& request) const {
  if (const std::string* authorization = request.Find("Authorization")) return Find(authorization);
  const std::string* key = request.Find("x-api-key");
  return key == nullptr ? std::nullopt : FindToken(*key);
}

std::optional<size_t> ApiKeys::FindToken(std::string_view token) const {
  // Keyed digests have one length and do not show how much of a wrong key was right.
  const Hash128 digest = SipHash128(secret_, token.data(), token.size());
  const std::shared_ptr<const Table> keys = table();
  uint64_t found = 0;  // 1 + the key's index, without a branch
  for (size_t i = 0; i < keys->digests.size(); ++i) {
    const uint64_t difference = (keys->digests[i].low ^ digest.low) | (keys->digests[i].high ^ digest.high);
    found |= (i + 1) * static_cast<uint64_t>(difference == 0) * keys->matches[i];
  }
  return found == 0 ? std::nullopt : std::optional<size_t>(found - 1);
}

std::string ApiKeys::Salt(size_t key) const {
  return table()->salts[key];
}

bool ValidRequestId(std::string_view id) {
  return !id.empty() && id.size() <= 256 &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

namespace {

// The host of a name or address; an IPv6 address may have no brackets.
std::string HostName(const std::string& text) {
  in6_addr v6{};
  return HostOf(inet_pton(AF_INET6, text.c_str(), &v6) == 1 ? "[" + text + "]" : text);
}

bool IsLoopbackName(const std::string& host) {
  if (host == "localhost") return true;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) {
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
  }
  in_addr v4{};
  return inet_pton(AF_INET, host.c_str(), &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

}  // namespace

Status CheckAllowedHosts(const std::vector<std::string>& hosts) {
  for (const std::string& host : hosts) {
    if (host == "*") continue;
    in6_addr v6{};
    const bool address = inet_pton(AF_INET6, host.c_str(), &v6) == 1;
    const bool name = ValidAuthority(host) && host.find('*') == std::string::npos &&
                      (host.front() == '[' ? host.back() == ']' : host.find(':') == std::string::npos);
    if (!address && !name) {
      return InvalidArgument(
          fmt::format("--allowed-hosts: '{}' is not a host name or address; give one without scheme and port, or *",
                      host),
          "allowed-hosts");
    }
  }
  return Status();
}

AllowedHosts::AllowedHosts(const std::vector<std::string>& given, const std::string& listen_host, bool loopback)
    : loopback_(loopback) {
  for (const std::string& host : given) {
    if (host == "*") any_ = true;
    hosts_.push_back(HostName(host));
  }
  if (loopback) hosts_.push_back(HostName(listen_host));
  if (!loopback && given.empty()) any_ = true;
}

bool AllowedHosts::Allows(const std::string& authority) const {
  if (any_ || authority.empty()) return true;
  const std::string host = HostOf(authority);
  return (loopback_ && IsLoopbackName(host)) || std::find(hosts_.begin(), hosts_.end(), host) != hosts_.end();
}

bool Origins::Allow(const HttpRequest& request) const {
  const std::string* origin = request.Find("Origin");
  if (origin == nullptr || *origin == "http://" + request.authority || *origin == "https://" + request.authority)
    return true;  // no page, or this server's own, perhaps behind a proxy with TLS
  return std::find(allowed_.begin(), allowed_.end(), "*") != allowed_.end() ||
         std::find(allowed_.begin(), allowed_.end(), *origin) != allowed_.end();
}

void Origins::AppendHeaders(const HttpRequest& request, bool preflight, Headers* headers) const {
  const std::string* origin = request.Find("Origin");
  if (origin == nullptr || allowed_.empty()) return;
  const bool any = std::find(allowed_.begin(), allowed_.end(), "*") != allowed_.end();
  if (!any && std::find(allowed_.begin(), allowed_.end(), *origin) == allowed_.end()) return;
  headers->emplace_back("Access-Control-Allow-Origin", any ? "*" : *origin);
  if (!any) headers->emplace_back("Vary", "Origin");
  headers->emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  if (!preflight) return;
  headers->emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
  const std::string* wanted = request.Find("Access-Control-Request-Headers");
  headers->emplace_back("Access-Control-Allow-Headers",
                        wanted ? *wanted : "authorization, content-type, x-api-key, anthropic-version, x-request-id");
  headers->emplace_back("Access-Control-Max-Age", "600");
}

}  // namespace tactus::http
