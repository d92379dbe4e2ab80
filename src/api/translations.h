// Translates bodies of /v1/responses and /v1/messages into the equivalent body of a chat. The parser of chats
// (api/chat/request_parser.h) checks the values, in one place for all APIs; this file maps names and shapes. Internal
// to api/. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/fields/field_names.h"
#include "api/json.h"
#include "api/tools/tools.h"
#include "base/json.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::api {

struct Translation {
  Json chat;         // the body of a chat
  FieldNames names;  // original names of its fields
  ToolLimits tools;
  std::vector<std::string> ignored;  // parts of the body that were left out, as ParsedRequest::ignored

  // Sets a field of the chat from the field `name` of the body.
  void Set(const char* field, const std::string& name, Json value) {
    chat[field] = std::move(value);
    names.Add(field, name);
  }
};

// `body` is an object. Images, files and server-side tools give kUnimplemented, with their name.
Result<Translation> ChatOfResponses(const Json& body);
// `counting`: the body is for count_tokens, where max_tokens is optional.
Result<Translation> ChatOfMessages(const Json& body, bool counting = false);

// Fields that mean the same in all APIs and keep their names.
std::span<const std::string_view> SharedFields();

// The members of a response object that repeat its request, from "instructions" on, with a comma before each.
std::string EchoOfResponses(const Json& body, const SamplingParams& sampling);

}  // namespace tactus::api
