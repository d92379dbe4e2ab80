// The page at "/" of servers and routers: the files of web/, embedded in the binary. Any thread.
#pragma once

#include <span>
#include <string_view>

#include "http/message.h"

namespace tactus::http {

struct PageFile {
  std::string_view name;  // "index.html", "chat.js"
  std::string_view text;
};

// Generated at build time by cmake/EmbedText.cmake.
std::span<const PageFile> PageFiles();

// Fills in the answer to a request for a file: its text, or 304 if the client has it. False: there is no such file.
bool AnswerPageFile(const HttpRequest& request, std::string_view name, HttpResponse* response);

}  // namespace tactus::http
