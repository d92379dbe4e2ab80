#include "serve/routes.h"

#include "api/paths.h"

namespace tactus::serve {
namespace {

constexpr std::string_view kId = "{id}";

constexpr RouteEntry kRoutes[] = {
    {"/v1/completions", Route::kCompletions, kPost, false},
    {"/v1/chat/completions", Route::kChat, kPost, false},
    {"/v1/responses", Route::kResponses, kPost, false},
    {"/v1/messages", Route::kMessages, kPost, false},
    {"/v1/messages/count_tokens", Route::kCountTokens, kPost, false},
    {"/v1/models", Route::kModels, kGet, false},
    {"/v1/models/{id}", Route::kModel, kGet, false},
    {"/v1/requests/{id}/explain", Route::kExplain, kGet, false},
    {"/events", Route::kEvents, kGet, false},
    {"/simulate", Route::kSimulate, kPost, false},
    {"/capacity", Route::kCapacity, kPost, false},
    {"/v1/files", Route::kFiles, kGet | kPost, false},
    {"/v1/files/{id}", Route::kFile, kGet | kDelete, false},
    {"/v1/files/{id}/content", Route::kFileContent, kGet, false},
    {"/v1/batches", Route::kBatches, kGet | kPost, false},
    {"/v1/batches/{id}", Route::kBatch, kGet, false},
    {"/v1/batches/{id}/cancel", Route::kBatchCancel, kPost, false},
    {"/fleet/migrate", Route::kFleetMigrate, kPost, false},
    {"/fleet/import", Route::kFleetImport, kPost, false},
    {"/fleet/streams/{id}", Route::kFleetStream, kPost, false},
    {"/tokenize", Route::kTokenize, kPost, false},
    {"/detokenize", Route::kDetokenize, kPost, false},
    {"/health", Route::kHealth, kGet, true},
    {"/ready", Route::kReady, kGet, true},
    {"/metrics", Route::kMetrics, kGet, true},
    {"/version", Route::kVersion, kGet, true},
    {"/fleet/state", Route::kFleetState, kGet, true},
    {"/openapi.json", Route::kOpenApi, kGet, true},
    {"/", Route::kPage, kGet, true},
    {"/page/{id}", Route::kPageFile, kGet, true},
};

// Decodes escapes such as %2F in a model's name.
std::string PercentDecoded(std::string_view text) {
  auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

bool Matches(const RouteEntry& entry, std::string_view path, std::string_view* id) {
  const std::string_view pattern = entry.path;
  const size_t at = pattern.find(kId);
  if (at == std::string_view::npos) return path == pattern;
  const std::string_view before = pattern.substr(0, at), after = pattern.substr(at + kId.size());
  if (path.size() <= before.size() + after.size() || !path.starts_with(before) || !path.ends_with(after)) return false;
  *id = path.substr(before.size(), path.size() - before.size() - after.size());
  // Names of models and ids of requests may contain slashes.
  return !entry.stored() || id->find('/') == std::string_view::npos;
}

}  // namespace

bool RouteEntry::Takes(std::string_view method) const {
  const unsigned asked = method == "GET" || method == "HEAD" ? kGet
                         : method == "POST"                  ? kPost
                         : method == "DELETE"                ? kDelete
                                                             : 0;
  return (methods & asked) != 0;
}

std::string RouteEntry::Methods(std::string_view separator) const {
  std::string text;
  for (const auto& [bit, name] : {std::pair(kGet, "GET"), std::pair(kPost, "POST"), std::pair(kDelete, "DELETE")}) {
    if ((methods & bit) == 0) continue;
    if (!text.empty()) text += separator;
    text += name;
  }
  return text;
}

std::string RouteEntry::Allow() const {
  std::string text = Methods(", ");
  if ((methods & kGet) != 0) text.insert(3, ", HEAD");
  return text + ", OPTIONS";
}

std::span<const RouteEntry> Routes() {
  return kRoutes;
}

const RouteEntry* FindRoute(std::string_view path, std::string* id) {
  const std::string canonical = api::CanonicalPath(path);
  for (const RouteEntry& entry : kRoutes) {
    std::string_view found;
    if (!Matches(entry, canonical, &found)) continue;
    if (id != nullptr) *id = PercentDecoded(found);
    return &entry;
  }
  return nullptr;
}

}  // namespace tactus::serve
