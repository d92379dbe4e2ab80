// An upload from a client to the disk: the form is parsed as it arrives, and its file is written piece by piece. An
// incomplete upload leaves nothing behind.
//
// Thread rule: as http::BodyReceiver; disk work runs on the pool's threads, one piece after the other.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/worker_pool.h"
#include "http/multipart.h"
#include "http/server.h"
#include "offline/server/files.h"

namespace tactus::serve {

// Limits the running uploads, in total and per client: each has a piece in memory.
class UploadPlaces {
 public:
  class Place {
   public:
    explicit Place(std::function<void()> leave) : leave_(std::move(leave)) {}
    ~Place() { leave_(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    const std::function<void()> leave_;
  };
  // Null: a limit is reached.
  std::shared_ptr<Place> Enter(const std::string& client);
  bool full(const std::string& client) const;

 private:
  struct State {
    std::mutex mutex;
    std::map<std::string, int> of;  // no entry: 0
    int all = 0;
    bool Full(const std::string& client) const;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class Upload final : public http::BodyReceiver, public http::PartSink, public std::enable_shared_from_this<Upload> {
 public:
  struct From {
    std::string owner;
    std::string boundary;
    int64_t announced_bytes = 0;  // by Content-Length; 0: no such header
    http::Headers headers;        // added to every answer
    std::shared_ptr<UploadPlaces::Place> place;
  };
  // `files` and `disk` outlive this.
  Upload(offline::Files* files, WorkerPool* disk, From from);

  // --- BodyReceiver ---
  int64_t max_bytes() const override;
  const char* max_bytes_option() const override { return "--max-file-size"; }
  void Take(std::string piece, Taken taken) override;
  void Whole(std::shared_ptr<http::Exchange> exchange) override;

  // --- PartSink ---
  Status OnPart(const http::PartHead& head) override;
  Status OnData(std::string_view bytes) override;
  Status OnPartEnd() override;

 private:
  http::HttpResponse ErrorAnswer(const Status& status) const;
  Result<std::string> Finish();

  offline::Files& files_;
  WorkerPool& disk_;
  const From from_;
  http::MultipartReader reader_;
  std::unique_ptr<offline::Files::Draft> draft_;
  std::string file_name_;
  bool in_file_ = false;
  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace tactus::serve
