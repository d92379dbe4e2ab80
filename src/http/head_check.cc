#include "http/head_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/printable.h"

namespace tactus::http {
namespace {

std::vector<std::string_view> ValuesOf(const Headers& headers, std::string_view name) {
  std::vector<std::string_view> values;
  for (const auto& [key, value] : headers) {
    if (EqualsIgnoreCase(key, name)) values.push_back(value);
  }
  return values;
}

// The codings of every Transfer-Encoding line, in order; empty list elements are ignored.
std::vector<std::string_view> Codings(const std::vector<std::string_view>& lines) {
  std::vector<std::string_view> codings;
  for (std::string_view line : lines) {
    for (;;) {
      const size_t comma = line.find(',');
      const std::string_view coding = Trimmed(line.substr(0, comma));
      if (!coding.empty()) codings.push_back(coding);
      if (comma == std::string_view::npos) break;
      line.remove_prefix(comma + 1);
    }
  }
  return codings;
}

HeadFault Fault(std::string message, int status = 400) {
  return {status, std::move(message)};
}

std::optional<HeadFault> CheckHost(const HttpRequest& head, bool http10) {
  const auto hosts = ValuesOf(head.headers, "Host");
  if (hosts.empty()) {
    if (http10) return std::nullopt;
    return Fault("Host: HTTP/1.1 needs this header");
  }
  if (hosts.size() > 1) return Fault(fmt::format("Host: {} of them; give one", hosts.size()));
  if (!ValidAuthority(hosts[0])) return Fault("Host: give a host name or address, and a port if it is not 80");
  if (!ValidAuthority(head.authority)) return Fault("the request's target names no valid host");
  return std::nullopt;
}

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsHex(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool IsNameCharacter(char c) {  // RFC 3986, reg-name
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("-._~%!$&'()*+,;=").find(c) != std::string_view::npos;
}

}  // namespace

std::optional<HeadFault> CheckHeadFraming(const HttpRequest& head, bool http10) {
  if (auto fault = CheckHost(head, http10)) return fault;
  const auto lengths = ValuesOf(head.headers, "Content-Length");
  const auto encodings = ValuesOf(head.headers, "Transfer-Encoding");
  if (lengths.size() > 1 || (!lengths.empty() && lengths[0].find(',') != std::string_view::npos)) {
    return Fault("Content-Length: given more than once; give it once");
  }
  if (!encodings.empty()) {
    if (http10) return Fault("Transfer-Encoding: not part of HTTP/1.0; use HTTP/1.1 or Content-Length");
    if (!lengths.empty()) return Fault("Content-Length and Transfer-Encoding exclude each other; give one");
    const auto codings = Codings(encodings);
    const auto chunked = std::count_if(codings.begin(), codings.end(),
                                       [](std::string_view c) { return EqualsIgnoreCase(c, "chunked"); });
    if (codings.empty() || !EqualsIgnoreCase(codings.back(), "chunked")) {
      return Fault("Transfer-Encoding: its last coding must be 'chunked', or the body has no end");
    }
    if (chunked > 1) return Fault("Transfer-Encoding: 'chunked' more than once; give it once");
    if (codings.size() > 1) {
      return Fault(
          fmt::format("Transfer-Encoding: '{}' is not supported; only 'chunked' is", codings.front().substr(0, 40)),
          501);
    }
  }
  const bool has_body = !encodings.empty() || (!lengths.empty() && lengths[0] != "0");
  if (has_body && (head.method == "GET" || head.method == "HEAD" || head.method == "OPTIONS")) {
    return Fault(fmt::format("{} takes no body; leave out Content-Length and Transfer-Encoding", head.method));
  }
  return std::nullopt;
}

std::string CheckAnswerHead(int status, const Headers& headers, bool http10, bool asked_for_coding) {
  if (status < 100 || status > 599) return fmt::format("status {}; HTTP has 100 to 599", status);
  const auto lengths = ValuesOf(headers, "Content-Length");
  if (lengths.size() > 1 || (!lengths.empty() && lengths[0].find(',') != std::string_view::npos))
    return "Content-Length is given more than once";
  if (const auto encodings = ValuesOf(headers, "Transfer-Encoding"); !encodings.empty()) {
    const auto codings = Codings(encodings);
    if (http10) return "Transfer-Encoding in an answer of HTTP/1.0, which does not have it";
    if (!lengths.empty()) return "Content-Length and Transfer-Encoding, which exclude each other";
    if (codings.size() != 1 || !EqualsIgnoreCase(codings[0], "chunked")) {
      return fmt::format("Transfer-Encoding '{}'; only 'chunked' is supported",
                         Printable(encodings.size() == 1 ? encodings[0] : std::string_view("several")));
    }
  }
  for (const std::string_view coding : ValuesOf(headers, "Content-Encoding")) {
    if (!asked_for_coding && !coding.empty() && !EqualsIgnoreCase(coding, "identity"))
      return fmt::format("Content-Encoding '{}', which the request did not accept", Printable(coding));
  }
  return {};
}

bool ValidAuthority(std::string_view authority) {
  size_t end = 0;
  if (!authority.empty() && authority.front() == '[') {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos || close == 1) return false;
    const std::string_view address = authority.substr(1, close - 1);
    if (!std::all_of(address.begin(), address.end(), [](char c) { return IsHex(c) || c == ':' || c == '.'; })) {
      return false;
    }
    end = close + 1;
  } else {
    end = std::min(authority.find(':'), authority.size());
    const std::string_view name = authority.substr(0, end);
    if (name.empty() || !std::all_of(name.begin(), name.end(), IsNameCharacter)) return false;
  }
  if (end == authority.size()) return true;
  const std::string_view port = authority.substr(end + 1);
  return authority[end] == ':' && port.size() <= 5 && std::all_of(port.begin(), port.end(), IsDigit);
}

std::string HostOf(std::string_view authority) {
  std::string_view host;
  if (!authority.empty() && authority.front() == '[') {
    const size_t close = authority.find(']');
    host = authority.substr(1, close == std::string_view::npos ? close : close - 1);
  } else {
    host = authority.substr(0, authority.find(':'));
  }
  std::string small(host);
  for (char& c : small) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return small;
}

}  // namespace tactus::http
