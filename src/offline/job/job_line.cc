#include "offline/job/job_line.h"

#include <fmt/format.h>

#include "api/chat/request_fields.h"
#include "api/chat/response_text.h"
#include "api/fields/fields.h"
#include "base/json.h"

namespace tactus::offline {
namespace {

Status CheckNames(const Json& object) {
  for (const auto& [name, value] : object.get_ref<const Json::object_t&>()) {
    if (name == "custom_id" || name == "method" || name == "url" || name == "body") continue;
    return InvalidArgument(
        fmt::format("{}: an unknown field; a line has custom_id, method, url and body; the request's "
                    "fields are in body",
                    api::Shown(Json(name))),
        name.substr(0, kMostCustomIdBytes));
  }
  return Status();
}

// The error for a field whose value is none of its choices.
Status NoneOf(const api::Fields& fields, const char* name, const std::optional<std::string>& value,
              const char* choices) {
  if (!fields.ok()) return fields.status();
  if (!value) return InvalidArgument(fmt::format("{}: missing; expected {}", name, choices), name);
  return InvalidArgument(fmt::format("{}: {} is not known; expected {}", name, api::Shown(Json(*value)), choices),
                         name);
}

// Number of values of a line that begin before its body: the line itself and the fields before it, which are strings.
int64_t PlaceOfBody(const Json& line) {
  int64_t place = 1;
  for (const auto& [key, value] : line.get_ref<const Json::object_t&>()) {
    if (key == "body") break;
    ++place;
  }
  return place;
}

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

const api::Api* ApiOfUrl(std::string_view url) {
  constexpr std::string_view kVersion = "/v1";
  while (url.ends_with('/')) url.remove_suffix(1);
  if (url.starts_with(kVersion)) url.remove_prefix(kVersion.size());
  for (const api::Api* known : {&api::kChatApi, &api::kCompletionsApi, &api::kResponsesApi}) {
    if (url == known->path.substr(kVersion.size())) return known;
  }
  return nullptr;
}

bool IsBlankLine(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

Status ParseLine(std::string_view text, int64_t number, JobLine* line) {
  *line = {};
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (IsBlankLine(text)) return InvalidArgument("the line is empty; remove it, or write a request into it");
  json_text::JsonLimits limits;
  ++limits.max_depth;  // around a body of the depth that a server accepts
  limits.first_line = number;
  std::vector<json_text::RoundedNumber> rounded;
  limits.rounded = &rounded;
  std::vector<json_text::LargeInteger> large;
  limits.large = &large;
  TACTUS_ASSIGN_OR_RETURN(Json object, json_text::ParseJson(text, limits));
  if (!object.is_object()) {
    return InvalidArgument(fmt::format("a line must be a JSON object with custom_id, method, url and body, not {}",
                                       api::TypeName(object)));
  }
  api::Fields fields(object);
  auto custom_id = fields.String("custom_id", kMostCustomIdBytes);
  if (!fields.ok()) return fields.status();
  if (!custom_id) return InvalidArgument("custom_id: missing; each line needs a unique one", "custom_id");
  if (custom_id->empty()) return InvalidArgument("custom_id: empty; each line needs a unique one", "custom_id");
  line->custom_id = std::move(custom_id);
  TACTUS_RETURN_IF_ERROR(CheckNames(object));
  const auto method = fields.String("method", kMostCustomIdBytes);
  if (method != "POST") return NoneOf(fields, "method", method, "\"POST\"");
  const auto url = fields.String("url", kMostCustomIdBytes);
  line->api = url ? ApiOfUrl(*url) : nullptr;
  if (line->api == nullptr) return NoneOf(fields, "url", url, kUrls);
  const Json* body = fields.Find("body");
  if (body == nullptr) return InvalidArgument("body: missing; pass the request as a JSON object", "body");
  if (!body->is_object()) fields.FailType("body", "a JSON object", *body);
  if (!fields.ok()) return fields.status();
  TACTUS_RETURN_IF_ERROR(api::CheckNumbers(*body, rounded));
  Json& taken = object["body"];
  if (!large.empty()) TACTUS_RETURN_IF_ERROR(api::KeepLargeIntegers(large, PlaceOfBody(object), &taken));
  line->body = std::make_shared<const Json>(std::move(taken));
  return Status();
}

std::string ResultNames::request_id() const {
  return fmt::format("batch_req_{}_{}", job, line);
}

namespace {

void AppendHead(const ResultNames& names, std::string* out) {
  *out += "{\"id\":\"" + names.request_id() + "\",\"custom_id\":";
  if (names.custom_id)
    json_text::AppendJsonString(out, *names.custom_id);
  else
    *out += "null";
}

void AppendResponse(const ResultNames& names, int http_status, std::string_view body, std::string* out) {
  *out += fmt::format(",\"response\":{{\"status_code\":{},\"request_id\":\"{}\",\"body\":", http_status,
                      names.request_id());
  *out += body;
  if (!names.ignored.empty()) {
    *out += fmt::format(",\"headers\":{{\"{}\":", api::kIgnoredHeader);
    json_text::AppendJsonString(out, names.ignored);
    *out += '}';
  }
  *out += '}';
}

void AppendError(const ResultNames& names, std::string_view code, std::string_view message, std::string_view param,
                 std::string* out) {
  *out += ",\"error\":{\"code\":";
  json_text::AppendJsonString(out, code);
  *out += ",\"message\":";
  json_text::AppendJsonString(out, fmt::format("line {}: {}", names.line, message));
  *out += ",\"param\":";
  if (param.empty())
    *out += "null";
  else
    json_text::AppendJsonString(out, param);
  *out += fmt::format(",\"line\":{}}}}}\n", names.line);
}

}  // namespace

std::string AnswerText(const ResultNames& names, std::string_view body) {
  std::string out;
  out.reserve(body.size() + 256);
  AppendHead(names, &out);
  AppendResponse(names, 200, body, &out);
  out += ",\"error\":null}\n";
  return out;
}

std::string FailureText(const ResultNames& names, const Status& why, bool asked) {
  const int http_status = api::HttpStatusOf(why.code());
  std::string out;
  AppendHead(names, &out);
  if (asked)
    AppendResponse(names, http_status, api::ErrorText(why), &out);
  else
    out += ",\"response\":null";
  const char* code = !asked ? "invalid_line" : http_status < 500 ? "invalid_request" : "server_error";
  AppendError(names, code, why.message(), why.param(), &out);
  return out;
}

std::string UnrunText(const ResultNames& names, std::string_view code, std::string_view message) {
  std::string out;
  AppendHead(names, &out);
  out += ",\"response\":null";
  AppendError(names, code, message, {}, &out);
  return out;
}

}  // namespace tactus::offline
