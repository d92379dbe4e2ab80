// What a message's head must satisfy before anything else is believed of it: where its body ends (a disagreement with
// a proxy about that lets one request hide inside another) and which host it is for. No sockets, no Beast.
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

// The rules of RFC 9112, 3.2, 6.1 to 6.3, where they leave a choice the strict one. A fault also means that nothing
// after the head can be trusted: the connection must close. `http10` tells the version.
std::optional<HeadFault> CheckHeadFraming(const HttpRequest& head, bool http10);

// What is wrong with the head of an answer, by the same rules; empty: nothing. `asked_for_coding`: the request said
// which codings of the content (gzip, ...) its sender reads; else there may be none.
std::string CheckAnswerHead(int status, const Headers& headers, bool http10, bool asked_for_coding);

// A host, with or without port, as a Host header may carry it.
bool ValidAuthority(std::string_view authority);
// Without the port, without the brackets of an IPv6 address, in small letters.
std::string HostOf(std::string_view authority);

}  // namespace tactus::http
