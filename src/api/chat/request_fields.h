// Reads the groups of fields that the request parsers share.
#pragma once

#include "api/chat/parsed_request.h"
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

// Fails if a number in one of the body's schemas was rounded. `rounded`: from JsonLimits, for the text that `body` was
// parsed from.
Status CheckNumbers(const Json& body, const std::vector<json_text::RoundedNumber>& rounded);

// Puts integers beyond 64 bits into quotes, in values that templates print, so that they keep all digits. `large`: from
// JsonLimits, for the text of which `body` is the value number `place`.
Status KeepLargeIntegers(const std::vector<json_text::LargeInteger>& large, int64_t place, Json* body);

// Sets objectives from headers of gateways: x-slo-ttft-ms, x-slo-tpot-ms and their x-llm-d- forms. The body's
// objectives win. `name` is compared without case; other names have no effect.
Status ApplySloHeader(std::string_view name, std::string_view value, Slo* slo);

}  // namespace tactus::api
