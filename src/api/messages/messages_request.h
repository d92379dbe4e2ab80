// Translates bodies of /v1/messages into bodies of chats. Internal to api/. Any thread.
#pragma once

#include "api/chat/translation.h"
#include "base/json.h"
#include "tactus/status.h"

namespace tactus::api {

// `body` is an object. Images, documents and server-side tools give kUnimplemented, with their name. `counting`: the
// body is for count_tokens, where max_tokens is optional.
Result<Translation> ChatOfMessages(const Json& body, bool counting = false);

}  // namespace tactus::api
