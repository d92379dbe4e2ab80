#include "serve/openapi.h"

#include "api/apis.h"
#include "api/field_table.h"
#include "base/json.h"
#include "serve/routes.h"
#include "serve/sim_question.h"
#include "tactus/version.h"

namespace tactus::serve {
namespace {

struct Text {
  Route route;
  const char* get;     // what GET does, or empty
  const char* post;    // what POST does
  const char* answer;  // members that every 200 answer has, separated by spaces; empty: no JSON object
};

constexpr Text kTexts[] = {
    {Route::kCompletions, "", "Continues a text.", "id object created model choices usage"},
    {Route::kChat, "", "Answers a conversation.", "id object created model choices usage"},
    {Route::kResponses, "", "Answers a conversation, in OpenAI's newer format.",
     "id object created_at status model output usage"},
    {Route::kMessages, "", "Answers a conversation, in Anthropic's format.",
     "id type role model content stop_reason usage"},
    {Route::kCountTokens, "", "Counts the tokens of a conversation in Anthropic's format.", "input_tokens"},
    {Route::kModels, "The served model, as a list.", "", "object data"},
    {Route::kModel, "The served model.", "", "id object created owned_by"},
    {Route::kExplain, "Why a request was late.", "", "segments totals_ms"},
    {Route::kEvents, "What the engine does, as it happens.", "", ""},
    {Route::kSimulate, "", "The load of the last ten minutes, simulated with other settings.",
     "happened same changed command"},
    {Route::kCapacity, "", "The load that this server can hold, by simulation.", "rate capacity holds command"},
    {Route::kFiles, "The files of this key.", "Uploads a file.", "object"},
    {Route::kFile, "A file's object.", "", "id object"},
    {Route::kFileContent, "A file's bytes.", "", ""},
    {Route::kBatches, "The batches of this key.", "Creates a batch.", "object"},
    {Route::kBatch, "A batch.", "", "id object status"},
    {Route::kBatchCancel, "", "Cancels a batch.", "id object status"},
    {Route::kFleetMigrate, "", "Between members of a fleet: moves sequences to another replica.", ""},
    {Route::kFleetImport, "", "Between members of a fleet: receives a sequence.", ""},
    {Route::kFleetStream, "", "Between members of a fleet: the rest of a moved answer.", ""},
    {Route::kTokenize, "", "The tokens of a text or a conversation.", "count max_model_len tokens"},
    {Route::kDetokenize, "", "The text of tokens.", "prompt"},
    {Route::kHealth, "Whether the process can serve.", "", "status"},
    {Route::kReady, "Whether requests are accepted.", "", "status"},
    {Route::kMetrics, "Prometheus text.", "", ""},
    {Route::kVersion, "Version and build.", "", "version build"},
    {Route::kFleetState, "The state that routers poll.", "", "status"},
    {Route::kOpenApi, "This document.", "", "openapi info paths"},
    {Route::kPage, "A page with a chat and a view of the engine.", "", ""},
    {Route::kPageFile, "A file of that page.", "", ""},
};

const Text& TextOf(Route route) {
  for (const Text& text : kTexts) {
    if (text.route == route) return text;
  }
  return kTexts[0];  // a test of the routes detects a missing text
}

// Errors of any route; docs/reference/api.md lists the cases.
constexpr std::pair<const char*, const char*> kErrors[] = {
    {"400", "The request can never work; the message names field, value and limit."},
    {"401", "No API key, or a wrong one."},
    {"403", "Another server's name in Host, or an Origin that is not allowed."},
    {"404", "No such route, model, file, batch or request."},
    {"405", "The route does not have this method."},
    {"408", "The request took too long."},
    {"413", "The body is too large."},
    {"415", "The route does not accept this type of body."},
    {"417", "An Expect header other than 100-continue."},
    {"429", "This client has too many open requests; try again later."},
    {"431", "The headers are too large."},
    {"500", "A fault of the server."},
    {"501", "Files and batches are off, or a Transfer-Encoding is not supported."},
    {"503", "Loading, draining or full; try again later."},
};

Json ErrorSchema(bool messages) {
  Json error = {{"type", "object"},
                {"required", {"message", "type"}},
                {"properties", {{"message", {{"type", "string"}}}, {"type", {{"type", "string"}}}}}};
  Json schema = {{"type", "object"}, {"required", {"error"}}, {"properties", {{"error", std::move(error)}}}};
  if (messages) {
    schema["required"].push_back("type");
    schema["properties"]["type"] = {{"type", "string"}, {"enum", {"error"}}};
  } else {
    Json& members = schema["properties"]["error"]["properties"];
    members["param"] = {{"type", {"string", "null"}}};
    members["code"] = {{"type", {"string", "null"}}};
  }
  return schema;
}

Json AnswerOf(const RouteEntry& entry, std::string_view members) {
  const bool streams = entry.route <= Route::kMessages && entry.methods == kPost;
  Json content = Json::object();
  if (entry.route == Route::kEvents) {
    content["text/event-stream"]["schema"] = {{"description", "Events, each with its data in JSON."}};
  } else if (members.empty()) {
    content["*/*"] = Json::object();
  } else {
    Json schema = {{"type", "object"}, {"required", Json::array()}};
    for (size_t at = 0; at < members.size();) {
      const size_t end = std::min(members.find(' ', at), members.size());
      schema["required"].push_back(members.substr(at, end - at));
      at = end + 1;
    }
    content["application/json"]["schema"] = std::move(schema);
    if (streams) content["text/event-stream"]["schema"] = {{"description", "Events, each with its data in JSON."}};
  }
  return {{"description", "Done."}, {"content", std::move(content)}};
}

Json BodyOf(const RouteEntry& entry, const api::RequestLimits& limits) {
  const char* type = entry.route == Route::kFiles ? "multipart/form-data"
                     : entry.fleet()              ? "application/octet-stream"
                                                  : "application/json";
  Json schema = api::BodySchema(entry.path, limits);
  const auto text = [](const char* what) { return Json{{"type", "string"}, {"description", what}}; };
  if (entry.route == Route::kFiles) {
    schema = {{"type", "object"},
              {"required", {"file", "purpose"}},
              {"properties",
               {{"file", {{"type", "string"}, {"format", "binary"}}},
                {"purpose", {{"type", "string"}, {"enum", {"batch"}}}}}}};
  } else if (entry.route == Route::kBatches) {
    schema = {{"type", "object"},
              {"required", {"input_file_id", "endpoint", "completion_window"}},
              {"properties",
               {{"input_file_id", text("An uploaded file's id.")},
                {"endpoint", {{"type", "string"}, {"enum", {"/v1/chat/completions", "/v1/completions"}}}},
                {"completion_window", text("\"24h\", or another time up to 30 days.")},
                {"metadata", {{"type", {"object", "null"}}}},
                {"output_expires_after", {{"type", {"object", "null"}}}}}}};
  } else if (entry.route == Route::kSimulate || entry.route == Route::kCapacity) {
    schema = {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
    for (const SimField& field : SimFields(entry.route == Route::kCapacity)) {
      Json& property = schema["properties"][field.name];
      const bool is_text = field.kind == SimField::Kind::kText, whole = field.kind == SimField::Kind::kWhole;
      property = {{"type", {is_text ? "string" : whole ? "integer" : "number", "null"}}, {"description", field.what}};
      if (is_text) {
        property["minLength"] = 1;
      } else {
        property["minimum"] = field.least, property["maximum"] = field.most;
      }
    }
  } else if (entry.fleet()) {
    schema = Json::object();
  }
  const bool required = entry.route != Route::kBatchCancel;
  return {{"required", required}, {"content", {{type, {{"schema", std::move(schema)}}}}}};
}

Json Operation(const RouteEntry& entry, const char* method, const api::RequestLimits& limits) {
  const Text& text = TextOf(entry.route);
  const bool post = method == std::string_view("post");
  const bool get = method == std::string_view("get");
  Json operation = {{"summary", get ? text.get : post ? text.post : "Deletes it."}, {"responses", Json::object()}};
  if (std::string_view(entry.path).find("{id}") != std::string_view::npos) {
    operation["parameters"] = {
        {{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}, {"minLength", 1}}}}};
  }
  if (post) operation["requestBody"] = BodyOf(entry, limits);
  Json& responses = operation["responses"];
  responses["200"] = AnswerOf(entry, text.answer);
  const bool messages = api::ApiOfPath(entry.path).path == api::kMessagesApi.path;
  const Json error = {{"$ref", messages ? "#/components/schemas/MessagesError" : "#/components/schemas/Error"}};
  const bool probe = entry.route == Route::kHealth || entry.route == Route::kReady || entry.route == Route::kFleetState;
  for (const auto& [status, when] : kErrors) {
    // A probe's 503 contains the state.
    const bool told = probe && status == std::string_view("503");
    const Json schema = told ? Json{{"type", "object"}} : error;
    responses[status] = {{"description", when}, {"content", {{"application/json", {{"schema", schema}}}}}};
  }
  if (entry.open) operation["security"] = Json::array({Json::object()});
  return operation;
}

}  // namespace

std::string OpenApiText(const api::RequestLimits& limits) {
  Json paths = Json::object();
  for (const RouteEntry& entry : Routes()) {
    Json& path = paths[entry.path];
    if ((entry.methods & kGet) != 0) path["get"] = Operation(entry, "get", limits);
    if ((entry.methods & kPost) != 0) path["post"] = Operation(entry, "post", limits);
    if ((entry.methods & kDelete) != 0) path["delete"] = Operation(entry, "delete", limits);
  }
  const Json document = {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "Tactus"},
        {"version", Version()},
        {"description",
         "An LLM server. Unknown fields are ignored, and the header x-tactus-ignored of the answer names "
         "them; with --strict-fields they give 400."}}},
      {"security", {Json::object(), {{"bearer", Json::array()}}, {{"key", Json::array()}}}},
      {"paths", std::move(paths)},
      {"components",
       {{"securitySchemes",
         {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
          {"key", {{"type", "apiKey"}, {"in", "header"}, {"name", "x-api-key"}}}}},
        {"schemas", {{"Error", ErrorSchema(false)}, {"MessagesError", ErrorSchema(true)}}}}},
  };
  return document.dump();
}

}  // namespace tactus::serve
