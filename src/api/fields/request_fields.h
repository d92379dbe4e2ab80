// Reads the groups of fields that the request parsers share. Internal to api/.
#pragma once

#include "api/chat/request_parser.h"
#include "api/fields/fields.h"

namespace tactus::api {

inline constexpr size_t kMaxStops = 16;
inline constexpr size_t kMaxStopBytes = 1024;
inline constexpr size_t kMaxStopTokens = 256;
inline constexpr size_t kMaxNameBytes = 1024;  // model, user, cache_salt
inline constexpr size_t kMaxClassBytes = 64;   // slo.class
inline constexpr int64_t kMaxLogprobs = 20;
inline constexpr size_t kMaxMessages = 16384;

// ParseBody parses the body into `doc`, which must be an object.
Status CheckBody(const Json& doc);  // that `doc` is an object
Status ParseBody(std::string_view body, StopToken stop, Json* doc);
// kNotFound; the message lists the served names.
Status NoSuchModel(std::string_view asked, const std::string& name, const std::vector<std::string>& other_names);
void ReadModel(Fields* fields, const RequestLimits& limits);
void ReadSampling(Fields* fields, const RequestLimits& limits, ParsedRequest* out);
// `least`: the minimum of max_tokens.
void ReadStop(Fields* fields, const RequestLimits& limits, int64_t least, ParsedRequest* out);
void ReadSlo(Fields* fields, Request* request);  // slo and slo_class
void ReadStreaming(Fields* fields, ParsedRequest* out);
void ReadIdentity(Fields* fields, ParsedRequest* out);  // user, priority, cache_salt
void RefuseUnbuilt(Fields* fields);
// Reads messages and template variables; returns the template's variables as JSON. `tools`: those that may be called;
// null: none.
std::string ReadChatVariables(Fields* fields, const ChatStyle& style, const ToolSet* tools);
// The text that replaces a part of a tool's result that is not text.
std::string NotShown(std::string_view type);
// Reads a list of token ids; false and an error in `fields` if it is not one.
bool ReadTokens(Fields* fields, const char* name, const Json& list, int64_t vocab_size, std::vector<TokenId>* out);

}  // namespace tactus::api
