#include "router/discovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "http/client.h"

namespace tactus::router {
namespace {

constexpr DurationNs kFileNs = kSecond, kDnsNs = 5 * kSecond;

// URLs of the lines, comments and blanks removed. kInvalidArgument names the line.
Result<std::vector<std::string>> UrlsOf(const std::string& text) {
  std::vector<std::string> urls;
  int number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    line = line.substr(0, line.find('#'));
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) continue;
    line = line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
    if (const auto url = http::ParseUrl(line); !url.ok())
      return InvalidArgument(fmt::format("line {}: {}", number, url.status().message()));
    urls.push_back(std::move(line));
  }
  return urls;
}

}  // namespace

Result<std::unique_ptr<Discovery>> Discovery::Create(const FleetOptions& options, http::Loop& loop, FleetWatch& watch,
                                                     FleetWatch::Log log) {
  std::unique_ptr<Discovery> made(new Discovery(options, loop, watch, std::move(log)));
  if (!options.replicas_file.empty()) {
    if (const Status read = made->ReadFile(); !read.ok())
      return InvalidArgument("--replicas-file: " + read.message(), "replicas-file");
    made->Later(kFileNs, &Discovery::ReadFileAgain);
  }
  if (!options.replicas_dns.empty()) {
    const auto url = http::ParseUrl("http://" + options.replicas_dns);
    const size_t colon = options.replicas_dns.rfind(':');
    if (!url.ok() || url->path != "/" || colon == std::string::npos || options.replicas_dns.back() == ':') {
      return InvalidArgument(fmt::format("--replicas-dns: '{}' is not HOST:PORT", options.replicas_dns),
                             "replicas-dns");
    }
    made->dns_host_ = url->host;
    made->dns_port_ = fmt::format("{}", url->port);
    made->Later(0, &Discovery::AskDns);
  }
  return made;
}

Discovery::Discovery(const FleetOptions& options, http::Loop& loop, FleetWatch& watch, FleetWatch::Log log)
    : options_(options), loop_(loop), watch_(watch), log_(log ? std::move(log) : [](std::string_view) {}) {}

Discovery::~Discovery() = default;

void Discovery::Later(DurationNs after_ns, void (Discovery::*what)()) {
  loop_.After(after_ns, [this, alive = std::weak_ptr<bool>(alive_), what] {
    if (alive.lock()) (this->*what)();
  });
}

Status Discovery::ReadFile() {
  std::ifstream file(options_.replicas_file, std::ios::binary);
  if (!file) return InvalidArgument(fmt::format("cannot read '{}'", options_.replicas_file));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (text == file_text_) return Status();
  TACTUS_ASSIGN_OR_RETURN(std::vector<std::string> urls, UrlsOf(text));
  file_text_ = text;
  Follow(&from_file_, std::move(urls));
  return Status();
}

void Discovery::ReadFileAgain() {
  const Status read = ReadFile();
  if (!read.ok() && read.message() != last_error_)
    log_(fmt::format("warning: --replicas-file: {}; the replicas stay as they are", read.message()));
  last_error_ = read.ok() ? std::string() : read.message();
  Later(kFileNs, &Discovery::ReadFileAgain);
}

void Discovery::AskDns() {
  loop_.Resolve(dns_host_, [this, alive = std::weak_ptr<bool>(alive_)](Result<std::vector<std::string>> found) {
    if (!alive.lock()) return;
    if (found.ok()) {
      std::vector<std::string> urls;
      for (const std::string& address : *found) {
        const bool v6 = address.find(':') != std::string::npos;
        urls.push_back(fmt::format("http://{}{}{}:{}", v6 ? "[" : "", address, v6 ? "]" : "", dns_port_));
      }
      Follow(&from_dns_, std::move(urls));
    } else {
      // A name server that is down says nothing of the replicas.
      log_(fmt::format("warning: --replicas-dns: {}; the replicas stay as they are", found.status().message()));
    }
    Later(kDnsNs, &Discovery::AskDns);
  });
}

void Discovery::Follow(std::vector<std::string>* followed, std::vector<std::string> urls) {
  for (const std::string& url : urls) {
    if (std::find(followed->begin(), followed->end(), url) != followed->end()) continue;
    if (const Status added = watch_.Add(url); !added.ok()) log_("warning: " + added.message());
  }
  for (const std::string& url : *followed) {
    if (std::find(urls.begin(), urls.end(), url) == urls.end()) (void)watch_.Remove(url);
  }
  *followed = std::move(urls);
}

}  // namespace tactus::router
