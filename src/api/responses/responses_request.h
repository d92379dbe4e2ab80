// Translates bodies of /v1/responses into bodies of chats. Internal to api/. Any thread.
#pragma once

#include <string>

#include "api/chat/translation.h"
#include "base/json.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::api {

// `body` is an object. Images, files and server-side tools give kUnimplemented, with their name.
Result<Translation> ChatOfResponses(const Json& body);

// The members of a response object that repeat its request, from "instructions" on, with a comma before each.
std::string EchoOfResponses(const Json& body, const SamplingParams& sampling);

}  // namespace tactus::api
