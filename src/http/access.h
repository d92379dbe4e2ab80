// Access checks: API keys (compared in constant time, never logged), request ids, web origins, host names. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
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

// kInvalidArgument for a key that would admit all clients (empty) or none (no header can contain it). The message never
// shows a key.
Status CheckKey(const std::string& option, const std::string& key);
Status CheckApiKeys(const std::vector<std::string>& keys);
// kInvalidArgument unless `classes` is empty or has one class for each key, each "none" or among `declared`
// (--slo-class as typed).
Status CheckKeyClasses(const std::vector<std::string>& keys, const std::vector<std::string>& classes,
                       const std::vector<std::string>& declared);

// kInvalidArgument if the limit for all bodies together (--max-body-total, bytes) is less than that for one
// (--max-body).
Status CheckBodyLimits(int64_t one, int64_t all);

// The name under which a key's clients are counted, "key 1".
std::string KeyName(size_t key);

// The keys of the clients. Replace changes them while requests are served: a key that stays has the index, and so the
// name, that it had; a key that is gone matches no longer, and its index is not used again.
class ApiKeys {
 public:
  // Empty and repeated keys are ignored. `classes`: one for each key, or empty. With `fleet` a key's salt is the same
  // on all members of the fleet.
  explicit ApiKeys(const std::vector<std::string>& keys, const std::vector<std::string>& classes = {},
                   const std::optional<FleetKeys>& fleet = std::nullopt);
  void Replace(const std::vector<std::string>& keys, const std::vector<std::string>& classes);
  size_t size() const { return table()->valid; }              // keys that match
  size_t indexes() const { return table()->digests.size(); }  // also those of keys that are gone
  bool empty() const { return size() == 0; }
  // The index of the key in the header's bearer token; nothing: not a key. The time depends only on the token's length.
  std::optional<size_t> Find(const std::string* authorization) const;
  // The same for the request's Authorization header, or without one its x-api-key header.
  std::optional<size_t> Find(const HttpRequest& request) const;
  // 32 hexadecimal digits derived from this key, the same at every start; they cannot be computed without the key.
  // Secret: a short key could be guessed from them.
  std::string Salt(size_t key) const;
  // Empty: the key has no class.
  std::string ClassOf(size_t key) const { return table()->classes[key]; }

 private:
  // By index.
  struct Table {
    std::vector<Hash128> digests;
    std::vector<uint64_t> matches;  // 1, or 0 once the key is gone
    std::vector<std::string> salts, classes;
    size_t valid = 0;
  };
  std::optional<size_t> FindToken(std::string_view token) const;
  std::shared_ptr<const Table> table() const {
    std::lock_guard lock(mutex_);
    return table_;
  }

  const Hash128 secret_;
  const bool fleet_;  // salts are the fleet's
  mutable std::mutex mutex_;
  std::shared_ptr<const Table> table_ = std::make_shared<const Table>();
};

// 1 to 256 visible ASCII characters.
bool ValidRequestId(std::string_view id);

// kInvalidArgument for a text that is not a host name, an address or '*'.
Status CheckAllowedHosts(const std::vector<std::string>& hosts);

// The host names that requests may be for. It prevents DNS rebinding: a web page can point its own name at a local
// server and read the answers, but its name is in the Host header.
class AllowedHosts {
 public:
  // Defaults: a server that listens only on the loopback allows the loopback's names and `listen_host`; any other
  // allows every name. `given` adds to the former and replaces the latter.
  AllowedHosts(const std::vector<std::string>& given, const std::string& listen_host, bool loopback);
  // `authority`: host with or without port; empty (only HTTP/1.0, which no browser uses) is allowed.
  bool Allows(const std::string& authority) const;

 private:
  std::vector<std::string> hosts_;
  bool any_ = false;
  const bool loopback_;
};

class Origins {
 public:
  explicit Origins(std::vector<std::string> allowed) : allowed_(std::move(allowed)) {}
  // Whether a web page with this Origin may call. Requests without Origin come from no page and are allowed, and so are
  // those of this server's own page.
  bool Allow(const HttpRequest& request) const;
  // Appends the CORS headers for this request's Origin; `preflight` adds methods and headers.
  void AppendHeaders(const HttpRequest& request, bool preflight, Headers* headers) const;

 private:
  const std::vector<std::string> allowed_;
};

}  // namespace tactus::http
