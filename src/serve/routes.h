// The paths that a server answers, and what each takes. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tactus::serve {

enum class Route {
  kCompletions,
  kChat,
  kResponses,
  kMessages,
  kCountTokens,
  kModels,
  kModel,
  kExplain,
  kFiles,
  kFile,
  kFileContent,
  kBatches,
  kBatch,
  kBatchCancel,
  kFleetMigrate,
  kFleetImport,
  kFleetStream,
  kTokenize,
  kDetokenize,
  kHealth,
  kReady,
  kMetrics,
  kVersion,
  kFleetState,
  kOpenApi,
  kPage
};

// Of methods; HEAD goes with GET, OPTIONS with all.
inline constexpr unsigned kGet = 1, kPost = 2, kDelete = 4;

struct RouteEntry {
  const char* path;  // "{id}": one part of a path, or of a model's name several
  Route route;
  unsigned methods;
  bool open;  // answers without an API key: probes, scrapers, the page

  bool stored() const { return route >= Route::kFiles && route <= Route::kBatchCancel; }  // asks for --files-dir
  // Of members of the fleet alone, with --kv-secret-file.
  bool fleet() const { return route >= Route::kFleetMigrate && route <= Route::kFleetStream; }
  bool Takes(std::string_view method) const;
  std::string Methods(std::string_view separator) const;  // "GET, POST"
  std::string Allow() const;                              // for that header
};

std::span<const RouteEntry> Routes();
// Of a path as clients write it (api/paths.h). Null: there is none. `id`, where it is not null, gets the one in the
// path, decoded.
const RouteEntry* FindRoute(std::string_view path, std::string* id = nullptr);

}  // namespace tactus::serve
