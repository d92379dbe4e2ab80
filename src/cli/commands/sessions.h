// Conversations of `tactus run` that are kept as files, and the text files that go into messages. A session's file has
// the messages as the chat API takes them: {"messages": [{"role", "content"}, ...]}.
#pragma once

#include <string>
#include <vector>

#include "api/chat/conversation.h"
#include "tactus/status.h"

namespace tactus::cli {

struct Session {
  std::string system;                      // empty: the template's own
  std::vector<api::ChatMessage> messages;  // user and assistant in turn
};

// The file of a session: NAME in the cache folder's `sessions`, or the path itself if it has a '/'. kInvalidArgument:
// no name of a file.
Result<std::string> SessionFile(const std::string& name);
// The names in the cache folder, sorted.
std::vector<std::string> SessionNames();
// kNotFound: there is none. kDataLoss: not a session.
Result<Session> ReadSession(const std::string& file);
// Replaces the file as a whole; only its owner may read it.
Status WriteSession(const std::string& file, const Session& session);

// The file's text as part of a message, below its name. The path may begin with ~/.
Result<std::string> FileForMessage(const std::string& path);

}  // namespace tactus::cli
