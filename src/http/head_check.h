// Checks of a message's head before it is used: where its body ends (if a proxy disagrees about that, one request can
// hide inside another) and which host it is for. No sockets, no Beast.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "http/message.h"

namespace tactus::http {

struct HeadFault {
  int status = 400;
  std::string message;
};

// The rules of RFC 9112, 3.2, 6.1 to 6.3; where they leave a choice, the strict one. After a fault nothing behind the
// head can be trusted: the connection must close. `http10`: the version is HTTP/1.0.
std::optional<HeadFault> CheckHeadFraming(const HttpRequest& head, bool http10);

// The fault of an answer's head, by the same rules; empty: none. `asked_for_coding`: the request named the content
// codings (gzip, ...) that its sender accepts; otherwise the answer may have none.
std::string CheckAnswerHead(int status, const Headers& headers, bool http10, bool asked_for_coding);

// Whether the text is a valid Host header: a host with or without port.
bool ValidAuthority(std::string_view authority);
// The host in lower case, without port and without the brackets of an IPv6 address.
std::string HostOf(std::string_view authority);

}  // namespace tactus::http
