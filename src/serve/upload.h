// A file on its way from a client to the disk: the form is read as it arrives, its file written piece by piece. One
// that does not come to its end leaves nothing behind.
//
// Thread rule: as http::BodyReceiver; the disk's part runs on the pool's threads, one piece after the other.
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

// How many uploads run, in all and of each client: each holds a piece in memory.
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
  // Null: as many as there may be run already.
  std::shared_ptr<Place> Enter(const std::string& client);
  bool full(const std::string& client) const;

 private:
  struct State {
    std::mutex mutex;
    std::map<std::string, int> of;  // no entry: none
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
    int64_t announced_bytes = 0;  // by Content-Length; 0: it has none
    http::Headers headers;        // of every answer
    std::shared_ptr<UploadPlaces::Place> place;
  };
  // All outlive it.
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
