// Bodies of /v1/responses and of /v1/messages, each made into the body of a chat that asks for the same. What a field
// may be is decided by the reader of chats (api/chat/request_parser.h), in one place for all APIs; here are the names
// and the shape. Internal to api/. Any thread.
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
  FieldNames names;  // of its fields
  ToolLimits tools;
  std::vector<std::string> ignored;  // what of the body was left out, as ParsedRequest::ignored

  // A field of the chat that comes of the field `name` of the body.
  void Set(const char* field, const std::string& name, Json value) {
    chat[field] = std::move(value);
    names.Add(field, name);
  }
};

// `body` is an object. Images, files and tools that run on a server are kUnimplemented and named.
Result<Translation> ChatOfResponses(const Json& body);
// `counting`: of count_tokens, where max_tokens may be left out.
Result<Translation> ChatOfMessages(const Json& body, bool counting = false);

// Fields that mean the same in all APIs and keep their names.
std::span<const std::string_view> SharedFields();

// What a response tells of its request: the members of its object, from "instructions" on, with a comma before each.
std::string EchoOfResponses(const Json& body, const SamplingParams& sampling);

}  // namespace tactus::api
