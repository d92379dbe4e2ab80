#include "serve/file_api.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "base/hash.h"
#include "base/printable.h"
#include "offline/job/answer_settings.h"
#include "offline/server/objects.h"
#include "results/obs/prometheus_text.h"

namespace tactus::serve {
namespace {

constexpr int kDiskThreads = 2;
constexpr int64_t kUsualFiles = 10'000, kUsualBatches = 20, kMostBatches = 100;
constexpr size_t kPieceBytes = 256 << 10;

// Reads a stored file piece by piece on the disk threads. The file may have been deleted since it was opened.
class FileSource final : public http::BodySource, public std::enable_shared_from_this<FileSource> {
 public:
  FileSource(int fd, int64_t bytes, WorkerPool* disk) : fd_(fd), bytes_(bytes), disk_(*disk) {}
  ~FileSource() override { close(fd_); }
  int64_t bytes() const override { return bytes_; }
  void Next(Come come) override {
    disk_.Post([self = shared_from_this(), come = std::move(come)] {
      std::optional<std::string> piece;
      try {
        piece = self->Read();
      } catch (const std::exception&) {  // no memory for the piece
      }
      come(std::move(piece));
    });
  }

 private:
  std::optional<std::string> Read() {
    std::string piece(std::min(kPieceBytes, static_cast<size_t>(bytes_ - at_)), '\0');
    ssize_t n = -1;
    do n = pread(fd_, piece.data(), piece.size(), static_cast<off_t>(at_));
    while (n < 0 && errno == EINTR);
    if (n <= 0) return std::nullopt;
    piece.resize(static_cast<size_t>(n));
    at_ += n;
    return piece;
  }

  const int fd_;
  const int64_t bytes_;
  WorkerPool& disk_;
  int64_t at_ = 0;
};

offline::FileLimits LimitsOf(const ServeOptions& o, size_t keys) {
  offline::FileLimits limits;
  limits.file_bytes = o.max_file_size.bytes;
  limits.all_bytes = o.files_quota.bytes;
  // With several keys one key may use half of the quota.
  limits.owner_bytes = keys > 1 ? o.files_quota.bytes / 2 : o.files_quota.bytes;
  return limits;
}

offline::BatchLimits BatchLimitsOf(const ServeOptions& o) {
  offline::BatchLimits limits;
  limits.running = o.max_batches;
  limits.lines = o.max_batch_lines;
  limits.line_bytes = ServeOptions::kMostBatchLineBytes;
  limits.input_bytes = o.max_file_size.bytes;
  limits.planner_bytes = ServeOptions::kBatchPlannerBytes;
  return limits;
}

}  // namespace

Status FileApi::Check(const ServeOptions& options) {
  if (options.files_dir.empty()) return Status();
  if (options.files_quota.bytes < options.max_file_size.bytes) {
    return InvalidArgument(fmt::format("--files-quota: {} bytes are less than the {} of --max-file-size; give at least "
                                       "as many",
                                       options.files_quota.bytes, options.max_file_size.bytes),
                           "files-quota");
  }
  // A missing folder is created on opening, within its nearest existing parent.
  std::error_code error;
  auto there = std::filesystem::absolute(options.files_dir, error);
  while (!std::filesystem::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  const bool folder = std::filesystem::is_directory(there, error);
  if (folder && access(there.c_str(), W_OK | X_OK) == 0) return Status();
  return InvalidArgument(fmt::format("--files-dir: cannot make '{}': {}", options.files_dir,
                                     folder ? std::strerror(errno) : "'" + there.string() + "' is no folder"),
                         "files-dir");
}

Result<std::unique_ptr<FileApi>> FileApi::Open(const ServeOptions& options, const http::ApiKeys& keys, Log log) {
  if (options.files_dir.empty()) return std::unique_ptr<FileApi>();
  TACTUS_ASSIGN_OR_RETURN(auto store, offline::Store::Open(options.files_dir));
  std::unique_ptr<FileApi> api(new FileApi(options, keys, std::move(store), std::move(log)));
  TACTUS_RETURN_IF_ERROR(api->files_.CountStored());
  return api;
}

FileApi::FileApi(const ServeOptions& options, const http::ApiKeys& keys, std::unique_ptr<offline::Store> store, Log log)
    : options_(options),
      keys_(keys),
      log_(log ? std::move(log) : [](std::string_view) {}),
      store_(std::move(store)),
      files_(store_.get(), LimitsOf(options, keys.size()), UnixSeconds),
      batches_(store_.get(), &files_, BatchLimitsOf(options), UnixSeconds, log_),
      disk_(kDiskThreads, "tactus-disk") {
  SetOwners(options.api_key);
}

void FileApi::SetOwners(const std::vector<std::string>& api_keys) {
  std::lock_guard lock(owners_mutex_);
  owners_.resize(keys_.indexes());
  for (const std::string& key : api_keys) {
    const std::string header = "Bearer " + key;
    const auto index = keys_.Find(&header);
    const Hash128 digest = SipHash128(store_->secret(), key.data(), key.size());
    if (index) owners_[*index] = fmt::format("{:016x}{:016x}", digest.high, digest.low);
  }
}

FileApi::~FileApi() {
  disk_.Stop();
}

// The client of an owner's batches. Batches of a removed key still run, and no other client shares their prefixes or
// reads their schedules.
offline::BatchClient FileApi::ClientOf(const std::string& owner) const {
  std::lock_guard lock(owners_mutex_);
  const auto found = std::find(owners_.begin(), owners_.end(), owner);
  if (owner.empty()) return {"batch", "", ""};
  if (found == owners_.end()) return {"batch " + owner, "batch " + owner, owner};
  const auto key = static_cast<size_t>(found - owners_.begin());
  const std::string name = http::KeyName(key);
  const bool own_prefixes = keys_.size() > 1 && !options_.share_prefix_cache;
  return {"batch of " + name, name, own_prefixes ? keys_.Salt(key) : ""};
}

offline::BackgroundShare FileApi::ShareOf(const Engine& engine, const EngineOptions& o) const {
  const auto part = [this](int64_t of) {
    return std::max<int64_t>(1, static_cast<int64_t>(options_.batch_share * static_cast<double>(of)));
  };
  offline::BackgroundShare share;
  share.sequences = part(o.max_num_seqs);
  share.waiting_sequences = std::max<int64_t>(1, std::min(share.sequences, o.max_queue / 4));
  const int64_t kv_tokens = engine.Stats().kv_blocks_total * o.block_size;
  if (kv_tokens > 0) share.kv_tokens = part(kv_tokens);
  return share;
}

Status FileApi::Start(Engine* engine, const EngineOptions& engine_options, const api::RequestLimits& limits,
                      Clock& clock) {
  offline::BatchService service;
  service.engine = engine;
  service.limits = limits;
  TACTUS_ASSIGN_OR_RETURN(service.settings, offline::SettingsOf(engine_options, engine->model().path));
  for (auto& setting : offline::SettingsOf(engine->model())) service.settings.push_back(std::move(setting));
  service.seed = static_cast<uint64_t>(engine_options.seed);
  service.share = ShareOf(*engine, engine_options);
  service.client = [this](const std::string& owner) { return ClientOf(owner); };
  service.clock = &clock;
  model_ = engine->model().name;
  return batches_.Start(std::move(service));
}

std::shared_ptr<http::BodyReceiver> FileApi::Receive(const http::HttpRequest& head, const std::string& client,
                                                     std::optional<size_t> key, std::string boundary,
                                                     http::Headers headers) {
  auto place = places_.Enter(client);
  if (!place) return nullptr;
  int64_t announced = 0;
  if (const std::string* length = head.Find("Content-Length"); length != nullptr)
    std::from_chars(length->data(), length->data() + length->size(), announced);
  return std::make_shared<Upload>(
      &files_, &disk_,
      Upload::From{OwnerOf(key), std::move(boundary), announced, std::move(headers), std::move(place)});
}

Result<http::HttpResponse> FileApi::Answer(StoredRoute route, const http::HttpRequest& request, const std::string& id,
                                           std::optional<size_t> key, std::string_view body) {
  const std::string owner = OwnerOf(key);
  if (route == StoredRoute::kContent) return Content(id, owner);
  http::HttpResponse response;
  const bool files = route == StoredRoute::kFiles || route == StoredRoute::kFile;
  TACTUS_ASSIGN_OR_RETURN(
      response.body, files ? AnswerFiles(route, request, id, owner) : AnswerBatches(route, request, id, owner, body));
  return response;
}

Result<std::string> FileApi::AnswerFiles(StoredRoute route, const http::HttpRequest& request, const std::string& id,
                                         const std::string& owner) {
  if (route == StoredRoute::kFiles) {
    std::string purpose;
    TACTUS_ASSIGN_OR_RETURN(const offline::Page page,
                            offline::ParsePage(request.target, kUsualFiles, kUsualFiles, &purpose));
    TACTUS_ASSIGN_OR_RETURN(const auto listed, store_->ListFiles(owner, purpose, page));
    return offline::FileListText(listed);
  }
  if (request.method == "DELETE") {
    TACTUS_RETURN_IF_ERROR(files_.Delete(owner, id));
    return offline::DeletedFileText(id);
  }
  TACTUS_ASSIGN_OR_RETURN(const auto file, store_->FindFile(owner, id));
  if (!file) return NotFound(fmt::format("there is no file '{}'", Printable(id)), "file_id");
  return offline::FileText(*file);
}

Result<std::string> FileApi::AnswerBatches(StoredRoute route, const http::HttpRequest& request, const std::string& id,
                                           const std::string& owner, std::string_view body) {
  if (route == StoredRoute::kBatches && request.method == "POST") {
    TACTUS_ASSIGN_OR_RETURN(const offline::BatchRow batch, batches_.Create(owner, body));
    return offline::BatchText(batch, model_);
  }
  if (route == StoredRoute::kBatches) {
    TACTUS_ASSIGN_OR_RETURN(const offline::Page page,
                            offline::ParsePage(request.target, kUsualBatches, kMostBatches, nullptr));
    TACTUS_ASSIGN_OR_RETURN(const auto listed, batches_.List(owner, page));
    return offline::BatchListText(listed, model_);
  }
  TACTUS_ASSIGN_OR_RETURN(const offline::BatchRow batch,
                          route == StoredRoute::kCancel ? batches_.Cancel(owner, id) : batches_.Find(owner, id));
  return offline::BatchText(batch, model_);
}

Result<http::HttpResponse> FileApi::Content(const std::string& id, const std::string& owner) {
  TACTUS_ASSIGN_OR_RETURN(const auto file, store_->FindFile(owner, id));
  if (!file) return NotFound(fmt::format("there is no file '{}'", Printable(id)), "file_id");
  const int fd = open(store_->FilePath(id).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Internal("the file's content cannot be read");
  http::HttpResponse response;
  response.content_type = "application/octet-stream";
  response.source = std::make_shared<FileSource>(fd, file->bytes, &disk_);
  // Uploaded content must never be displayed as a page of this server.
  response.headers.emplace_back("X-Content-Type-Options", "nosniff");
  response.headers.emplace_back("Content-Disposition", "attachment");
  return response;
}

void FileApi::AppendMetrics(results::PrometheusText* text) const {
  const auto value = [](auto count) { return static_cast<double>(count); };
  const offline::Batches::Metrics m = batches_.metrics();
  text->Family("tactus_batches", results::PrometheusText::Type::kGauge, "Batches by status, ended ones included.");
  for (size_t i = 0; i < offline::kBatchStates; ++i)
    text->Sample(value(m.by_state[i]), {{"status", offline::kBatchStateNames[i]}});
  text->Gauge("tactus_batches_running", "Batches whose lines are running; at most --max-batches.", value(m.running));
  text->Family("tactus_batch_lines_total", results::PrometheusText::Type::kCounter,
               "Lines of batches that have a result.");
  text->Sample(value(m.lines_out), {{"result", "completed"}});
  text->Sample(value(m.lines_failed), {{"result", "failed"}});
  const offline::Files::Stats files = files_.stats();
  text->Gauge("tactus_files", "Files stored.", value(files.files));
  text->Gauge("tactus_files_bytes", "Bytes of all files stored.", value(files.bytes));
  text->Gauge("tactus_files_bytes_limit", "Limit of tactus_files_bytes: --files-quota.",
              value(files_.limits().all_bytes));
  text->Gauge("tactus_files_uploading_bytes", "Bytes received of files that are not complete.",
              value(files.writing_bytes));
}

}  // namespace tactus::serve
