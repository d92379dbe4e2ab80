#include "serve/upload.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/chat/response_text.h"
#include "base/printable.h"
#include "offline/server/objects.h"

namespace tactus::serve {
namespace {

constexpr int kMostUploads = 64, kMostOfOneClient = 16;
constexpr int64_t kFormBytes = 64 << 10;  // of a form besides its file
constexpr size_t kMostFieldBytes = 4096;
constexpr const char* kFileField = "file";

}  // namespace

bool UploadPlaces::State::Full(const std::string& client) const {
  const auto found = of.find(client);
  return all >= kMostUploads || (found != of.end() && found->second >= kMostOfOneClient);
}

bool UploadPlaces::full(const std::string& client) const {
  std::lock_guard lock(state_->mutex);
  return state_->Full(client);
}

std::shared_ptr<UploadPlaces::Place> UploadPlaces::Enter(const std::string& client) {
  std::lock_guard lock(state_->mutex);
  if (state_->Full(client)) return nullptr;
  ++state_->all;
  ++state_->of[client];
  return std::make_shared<Place>([state = state_, client] {
    std::lock_guard inner(state->mutex);
    --state->all;
    if (--state->of[client] == 0) state->of.erase(client);
  });
}

Upload::Upload(offline::Files* files, WorkerPool* disk, From from)
    : files_(*files), disk_(*disk), from_(std::move(from)), reader_(from_.boundary, this) {}

int64_t Upload::max_bytes() const {
  return files_.limits().file_bytes + kFormBytes;
}

http::HttpResponse Upload::ErrorAnswer(const Status& status) const {
  http::HttpResponse response;
  response.status = api::HttpStatusOf(status.code());
  response.headers = from_.headers;
  http::AddRetryAfter(&response, 60);
  response.body = api::ErrorText(status);
  return response;
}

void Upload::Take(std::string piece, Taken taken) {
  disk_.Post([self = shared_from_this(), piece = std::move(piece), taken = std::move(taken)] {
    Status status;
    try {
      status = self->reader_.Feed(piece);
    } catch (const std::exception& e) {
      status = Internal(e.what());
    }
    taken(status.ok() ? std::optional<http::HttpResponse>() : self->ErrorAnswer(status));
  });
}

void Upload::Whole(std::shared_ptr<http::Exchange> exchange) {
  disk_.Post([self = shared_from_this(), exchange = std::move(exchange)] {
    Result<std::string> text = Internal("the file could not be stored");
    try {
      text = self->Finish();
    } catch (const std::exception& e) {
      text = Internal(e.what());
    }
    if (!text.ok()) return exchange->Respond(self->ErrorAnswer(text.status()));
    http::HttpResponse response;
    response.headers = self->from_.headers;
    response.body = std::move(*text);
    exchange->Respond(std::move(response));
  });
}

Result<std::string> Upload::Finish() {
  TACTUS_RETURN_IF_ERROR(reader_.Finish());
  TACTUS_ASSIGN_OR_RETURN(const offline::UploadFields fields, offline::ParseUpload(fields_));
  if (!draft_) return InvalidArgument("file: missing; give the file's content as the form's field 'file'", kFileField);
  TACTUS_ASSIGN_OR_RETURN(const offline::FileRow file, draft_->Finish(file_name_, fields.live_s));
  draft_.reset();
  return offline::FileText(file);
}

Status Upload::OnPart(const http::PartHead& head) {
  in_file_ = head.name == kFileField;
  if (!in_file_) {
    fields_.emplace_back(head.name, "");
    return Status();
  }
  if (draft_) return InvalidArgument("file: given twice; send each file in a separate request", kFileField);
  file_name_ = head.filename.value_or("");
  TACTUS_ASSIGN_OR_RETURN(draft_, files_.Begin(from_.owner, std::max<int64_t>(0, from_.announced_bytes - kFormBytes)));
  return Status();
}

Status Upload::OnData(std::string_view bytes) {
  if (in_file_) return draft_->Write(bytes);
  auto& [name, value] = fields_.back();
  if (value.size() + bytes.size() > kMostFieldBytes) {
    return InvalidArgument(
        fmt::format("{}: longer than {} bytes, the limit of a form's field", Printable(name), kMostFieldBytes),
        Printable(name));
  }
  value += bytes;
  return Status();
}

Status Upload::OnPartEnd() {
  if (in_file_ || fields_.back().first != "purpose") return Status();
  return offline::CheckPurpose(fields_.back().second);
}

}  // namespace tactus::serve
