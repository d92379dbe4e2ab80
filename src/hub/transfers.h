// HTTP requests of one thread, several at a time, over libcurl: TLS with the system's certificates, proxies of the
// environment, redirects. The hub's token goes to the hub's host alone, not to the host of a redirect. Retries: Ask and
// Patience.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "hub/settings.h"
#include "tactus/status.h"

namespace tactus::hub {

// The end of a request, or its head while its body arrives.
struct Answer {
  int status = 0;            // of the last response; 0: none came
  std::string error;         // why there is no whole answer: no connection, a cut; empty: none
  bool certificate = false;  // the error is about the server's certificate
  bool stopped = false;      // on_bytes returned false
  std::vector<std::pair<std::string, std::string>> headers;  // of the last response, names in small letters
  std::string host;                                          // "https://cdn.example.com" of the last response

  bool ok() const { return error.empty() && status >= 200 && status < 300; }
  std::string Header(std::string_view name) const;  // name in small letters; empty: none
  // Of Content-Range, or Content-Length of a whole answer; -1: not said.
  int64_t TotalBytes() const;
  int64_t FirstByte() const;  // of Content-Range; 0 without one
};

struct Request {
  std::string url;
  bool token = false;    // carry the token: only for URLs of the hub
  bool head = false;     // HEAD, whose redirects are not followed
  std::string range;     // "0-1023"; empty: all
  std::string if_range;  // validator
  std::string accept = "*/*";
  // Bytes of a 2xx answer; false ends the request.
  std::function<bool(const Answer& head, std::string_view bytes)> on_bytes;
  std::function<void(const Answer&)> on_end;  // once, unless StopAll ends it; may start further requests
};

// Waits between tries, which double until something arrives again.
class Patience {
 public:
  explicit Patience(const Settings& settings) : settings_(&settings) {}
  void Reset() { failures_ = 0; }
  // The wait before the next try; nothing: another try is of no use, or too many failed in a row. `expired`: the answer
  // is a refusal that a new redirect may avoid.
  std::optional<DurationNs> Next(const Answer& answer, bool expired = false);
  int failures() const { return failures_; }

 private:
  const Settings* settings_;
  int failures_ = 0;
};

class Transfers {
 public:
  // Both outlive the object.
  Transfers(const Settings& settings, Clock& clock);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void Start(Request request);
  size_t running() const;
  // Waits for network traffic, at most `most_ns`, and makes the calls that are due.
  void Work(DurationNs most_ns);
  void StopAll();

  // One request after another until the answer is final. `body` gets at most `most_bytes`; a longer one is an error.
  // Null: only the head is wanted.
  Answer Ask(Request request, std::string* body = nullptr, size_t most_bytes = 0);
  const Settings& settings() const { return settings_; }
  Clock& clock() { return clock_; }

 private:
  struct Running;
  void Finish(Running* running, int code);
  const Settings& settings_;
  Clock& clock_;
  void* multi_;
  std::list<std::unique_ptr<Running>> running_;
};

}  // namespace tactus::hub
