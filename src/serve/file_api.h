// /v1/files and /v1/batches: the files and batches under --files-dir, their owners, and the threads that wait for the
// disk instead of the io thread.
//
// Thread rule: TooManyUploads, Receive, Post, AppendMetrics and StopBeginning on any thread, without waiting for the
// disk; Answer on a disk thread. Destroy it after the HTTP server and before the engine.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/chat/parsed_request.h"
#include "base/clock.h"
#include "base/worker_pool.h"
#include "http/access.h"
#include "http/server.h"
#include "offline/server/batches.h"
#include "offline/server/files.h"
#include "offline/server/store.h"
#include "serve/serve_options.h"
#include "serve/upload.h"
#include "tactus/engine.h"
#include "tactus/options.h"

namespace tactus::results {
class PrometheusText;
}  // namespace tactus::results

namespace tactus {}

namespace tactus::serve {

enum class StoredRoute { kFiles, kFile, kContent, kBatches, kBatch, kCancel };

class FileApi {
 public:
  using Log = std::function<void(std::string_view line)>;
  // The errors of the options that Open would report, without opening anything.
  static Status Check(const ServeOptions& options);
  // kInvalidArgument, kUnavailable, kDataLoss: the folder cannot be used. Null: no --files-dir.
  static Result<std::unique_ptr<FileApi>> Open(const ServeOptions& options, const http::ApiKeys& keys, Log log);
  ~FileApi();

  // Starts to run batches. Call once.
  Status Start(Engine* engine, const EngineOptions& engine_options, const api::RequestLimits& limits, Clock& clock);
  void StopBeginning() { batches_.StopBeginning(); }
  bool WaitUntilIdle(DurationNs timeout_ns) { return disk_.WaitUntilIdle(timeout_ns); }

  // Whether this client has reached its limit of open uploads.
  bool TooManyUploads(const std::string& client) const { return places_.full(client); }
  // The receiver of an upload; null if the client has too many. `boundary`: of the form.
  std::shared_ptr<http::BodyReceiver> Receive(const http::HttpRequest& head, const std::string& client,
                                              std::optional<size_t> key, std::string boundary, http::Headers headers);

  void Post(std::function<void()> task) { disk_.Post(std::move(task)); }
  // Answers any request but an upload. `id`: of the file or batch in the path.
  Result<http::HttpResponse> Answer(StoredRoute route, const http::HttpRequest& request, const std::string& id,
                                    std::optional<size_t> key, std::string_view body);
  void AppendMetrics(results::PrometheusText* text) const;
  // The keys of the ApiKeys have been replaced by these; call before a request with one of them.
  void SetOwners(const std::vector<std::string>& api_keys);

 private:
  FileApi(const ServeOptions& options, const http::ApiKeys& keys, std::unique_ptr<offline::Store> store, Log log);
  std::string OwnerOf(std::optional<size_t> key) const {
    std::lock_guard lock(owners_mutex_);
    return key ? owners_[*key] : std::string();
  }
  offline::BatchClient ClientOf(const std::string& owner) const;
  offline::BackgroundShare ShareOf(const Engine& engine, const EngineOptions& options) const;
  Result<std::string> AnswerFiles(StoredRoute route, const http::HttpRequest& request, const std::string& id,
                                  const std::string& owner);
  Result<std::string> AnswerBatches(StoredRoute route, const http::HttpRequest& request, const std::string& id,
                                    const std::string& owner, std::string_view body);
  Result<http::HttpResponse> Content(const std::string& id, const std::string& owner);

  const ServeOptions options_;
  const http::ApiKeys& keys_;
  const Log log_;
  const std::unique_ptr<offline::Store> store_;
  offline::Files files_;
  offline::Batches batches_;
  mutable std::mutex owners_mutex_;
  std::vector<std::string> owners_;  // by index in keys_: digests of the keys, equal after a restart
  std::string model_;                // set by Start
  UploadPlaces places_;
  WorkerPool disk_;  // last: its threads use all of the above
};

}  // namespace tactus::serve
