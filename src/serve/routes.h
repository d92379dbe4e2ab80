// The paths that a server answers, with their methods. Any thread.
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
  kEvents,
  kSimulate,
  kCapacity,
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
  kPage,
  kPageFile
};

// Bits of methods. HEAD is allowed with GET, OPTIONS with all.
inline constexpr unsigned kGet = 1, kPost = 2, kDelete = 4;

struct RouteEntry {
  const char* path;  // "{id}": one part of a path; for a model's name several
  Route route;
  unsigned methods;
  bool open;  // needs no API key: probes, scrapers, the page

  bool stored() const { return route >= Route::kFiles && route <= Route::kBatchCancel; }  // needs --files-dir
  // Only for members of the fleet, with --kv-secret-file.
  bool fleet() const { return route >= Route::kFleetMigrate && route <= Route::kFleetStream; }
  bool Takes(std::string_view method) const;
  std::string Methods(std::string_view separator) const;  // "GET, POST"
  std::string Allow() const;                              // value of the Allow header
};

std::span<const RouteEntry> Routes();
// The route of a path as clients write it (api/paths.h). Null: none. `id`, if not null, gets the decoded id in the
// path.
const RouteEntry* FindRoute(std::string_view path, std::string* id = nullptr);

}  // namespace tactus::serve
