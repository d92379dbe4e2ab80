#include "fleet/router/discovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "http/client.h"

namespace tactus::fleet {
namespace {

constexpr DurationNs kFileNs = kSecond, kDnsNs = 5 * kSecond;

// URLs of the lines, without comments and white space. kInvalidArgument names the line.
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

Result<std::string> TextOf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return InvalidArgument(fmt::format("'{}' is not a readable file; name one with a URL on each line", path));
  std::ifstream file(path, std::ios::binary);
  if (!file) return InvalidArgument(fmt::format("cannot read '{}'", path));
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return InvalidArgument(fmt::format("cannot read '{}' to its end", path));
  return text;
}

Status OfFile(const Status& status) {
  return status.ok() ? status : InvalidArgument("--replicas-file: " + status.message(), "replicas-file");
}

// HOST:PORT, or https://HOST:PORT.
Result<http::Url> DnsUrl(const FleetOptions& options) {
  const std::string& text = options.replicas_dns;
  return http::ParseUrl(text.starts_with("https://") ? text : "http://" + text);
}

}  // namespace

Status Discovery::Check(const FleetOptions& options) {
  if (!options.replicas_file.empty()) {
    const auto text = TextOf(options.replicas_file);
    TACTUS_RETURN_IF_ERROR(OfFile(text.status()));
    TACTUS_RETURN_IF_ERROR(OfFile(UrlsOf(*text).status()));
  }
  if (options.replicas_dns.empty()) return Status();
  const auto url = DnsUrl(options);
  const size_t colon = options.replicas_dns.rfind(':');
  if (url.ok() && url->path == "/" && colon != std::string::npos && options.replicas_dns.back() != ':') return Status();
  return InvalidArgument(
      fmt::format("--replicas-dns: '{}' is not HOST:PORT or https://HOST:PORT", options.replicas_dns), "replicas-dns");
}

Result<std::unique_ptr<Discovery>> Discovery::Create(const FleetOptions& options, http::Loop& loop, FleetWatch& watch,
                                                     FleetWatch::Log log) {
  TACTUS_RETURN_IF_ERROR(Check(options));
  std::unique_ptr<Discovery> made(new Discovery(options, loop, watch, std::move(log)));
  if (!options.replicas_file.empty()) {
    TACTUS_RETURN_IF_ERROR(OfFile(made->ReadFile()));
    made->Later(kFileNs, &Discovery::ReadFileAgain);
  }
  if (!options.replicas_dns.empty()) {
    const auto url = DnsUrl(options);
    made->dns_host_ = url->host;
    made->dns_scheme_ = url->tls ? "https" : "http";
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
  TACTUS_ASSIGN_OR_RETURN(const std::string text, TextOf(options_.replicas_file));
  const bool first = !read_once_, settled = text == read_text_;
  read_once_ = true;
  read_text_ = text;
  // The file may be partly written: it counts once two reads are equal.
  if (text == file_text_ || (!first && !settled)) return Status();
  TACTUS_ASSIGN_OR_RETURN(std::vector<std::string> urls, UrlsOf(text));
  if (urls.empty() && !from_file_.empty())
    return InvalidArgument(fmt::format("'{}' no longer names any replica; the former ones are kept until it does",
                                       options_.replicas_file));
  file_text_ = text;
  Follow(&from_file_, std::move(urls));
  return Status();
}

void Discovery::ReadFileAgain() {
  Later(kFileNs, &Discovery::ReadFileAgain);  // first, so that it happens even after an error
  Say("--replicas-file", ReadFile());
}

// Logs each fault once, however long it lasts.
void Discovery::Say(const std::string& option, const Status& status) {
  std::string& said = said_[option];
  if (!status.ok() && status.message() != said)
    log_(fmt::format("warning: {}: {}; the replicas stay as they are", option, status.message()));
  said = status.ok() ? std::string() : status.message();
}

void Discovery::AskDns() {
  loop_.Resolve(dns_host_, [this, alive = std::weak_ptr<bool>(alive_)](Result<std::vector<std::string>> found) {
    if (!alive.lock()) return;
    Later(kDnsNs, &Discovery::AskDns);
    if (found.ok()) {
      std::vector<std::string> urls;
      for (const std::string& address : *found) {
        const bool v6 = address.find(':') != std::string::npos;
        urls.push_back(fmt::format("{}://{}{}{}:{}", dns_scheme_, v6 ? "[" : "", address, v6 ? "]" : "", dns_port_));
      }
      Follow(&from_dns_, std::move(urls));
    }
    Say("--replicas-dns", found.status());  // a failure of the name server changes no replica
  });
}

// Whether another source names it too.
bool Discovery::Stays(const std::string& url, const std::vector<std::string>* followed) const {
  const auto in = [&](const std::vector<std::string>& list) {
    return std::find(list.begin(), list.end(), url) != list.end();
  };
  if (followed != &from_file_ && in(from_file_)) return true;
  if (followed != &from_dns_ && in(from_dns_)) return true;
  return std::any_of(options_.replicas.begin(), options_.replicas.end(), [&](const std::string& list) {
    return ("," + list + ",").find("," + url + ",") != std::string::npos;
  });
}

void Discovery::Follow(std::vector<std::string>* followed, std::vector<std::string> urls) {
  for (const std::string& url : urls) {
    if (std::find(followed->begin(), followed->end(), url) != followed->end()) continue;
    if (const Status added = watch_.Add(url); !added.ok()) log_("warning: " + added.message());
  }
  for (const std::string& url : *followed) {
    const bool named = std::find(urls.begin(), urls.end(), url) != urls.end() || Stays(url, followed);
    if (!named) (void)watch_.Remove(url);
  }
  *followed = std::move(urls);
}

}  // namespace tactus::fleet
