// Who may call: API keys (compared in constant time, never logged), request ids, web origins, host names. Immutable:
// any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fleet_secret.h"
#include "base/hash.h"
#include "http/message.h"
#include "tactus/status.h"

namespace tactus::http {

// 128 bits from the system's generator.
Hash128 RandomBits();
// 32 hexadecimal digits of RandomBits.
std::string RandomId();

// kInvalidArgument for a key that would let all clients in (empty) or none (no header can carry it). Never shows a key.
Status CheckKey(const std::string& option, const std::string& key);
Status CheckApiKeys(const std::vector<std::string>& keys);
// kInvalidArgument unless there are no classes of keys, or one for each key, each "none" or among `declared`
// (--slo-class as typed).
Status CheckKeyClasses(const std::vector<std::string>& keys, const std::vector<std::string>& classes,
                       const std::vector<std::string>& declared);

// kInvalidArgument where all bodies together (--max-body-total, bytes) may hold less than one (--max-body).
Status CheckBodyLimits(int64_t one, int64_t all);

// How a key is called where its clients are counted, "key 1".
std::string KeyName(size_t key);

class ApiKeys {
 public:
  // Empty and repeated keys do not count. `classes`: of each key, or empty.
  // With `fleet` a key's salt is the same on all members of the fleet.
  explicit ApiKeys(const std::vector<std::string>& keys, const std::vector<std::string>& classes = {},
                   const std::optional<FleetKeys>& fleet = std::nullopt);
  size_t size() const { return digests_.size(); }
  bool empty() const { return digests_.empty(); }
  // Which key the header's bearer token is; nothing: none. Time depends on the token's length alone.
  std::optional<size_t> Find(const std::string* authorization) const;
  // Of the request's Authorization header, or where it has none of its x-api-key.
  std::optional<size_t> Find(const HttpRequest& request) const;
  // 32 hexadecimal digits that stand for this key, at every start, and that cannot be made without it. They are
  // not for others' eyes: a short key could be guessed from them.
  std::string Salt(size_t key) const;
  // Empty: none.
  const std::string& ClassOf(size_t key) const { return classes_[key]; }

 private:
  std::optional<size_t> FindToken(std::string_view token) const;

  Hash128 secret_;
  std::vector<Hash128> digests_;
  std::vector<std::string> salts_;
  std::vector<std::string> classes_;
};

// 1 to 256 visible ASCII characters.
bool ValidRequestId(std::string_view id);

// kInvalidArgument for what is no host name, no address and not '*'.
Status CheckAllowedHosts(const std::vector<std::string>& hosts);

// The names under which this server may be called. A web page can give its own name the address of a local server and
// so read what that answers; its name in the Host header betrays it.
class AllowedHosts {
 public:
  // Nothing given: a server that listens on the loopback alone goes by the names of the loopback and by `listen_host`,
  // any other by every name. What is given adds to the former and replaces the latter.
  AllowedHosts(const std::vector<std::string>& given, const std::string& listen_host, bool loopback);
  // `authority`: host with or without port; empty (HTTP/1.0 only, which no browser speaks) is allowed.
  bool Allows(const std::string& authority) const;

 private:
  std::vector<std::string> hosts_;
  bool any_ = false;
  const bool loopback_;
};

class Origins {
 public:
  explicit Origins(std::vector<std::string> allowed) : allowed_(std::move(allowed)) {}
  // Whether a page that sends this Origin may call; without one it is no page.
  bool Allow(const HttpRequest& request) const;
  // Appends the CORS headers that this request's Origin is entitled to; `preflight` adds methods and headers.
  void AppendHeaders(const HttpRequest& request, bool preflight, Headers* headers) const;

 private:
  const std::vector<std::string> allowed_;
};

}  // namespace tactus::http
