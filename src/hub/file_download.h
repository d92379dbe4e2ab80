// One file of DownloadAll: its lock, its pieces and their requests, its hash. One thread.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "hub/digest.h"
#include "hub/download.h"
#include "hub/file_lock.h"
#include "hub/partial_file.h"

namespace tactus::hub {

class FileDownload {
 public:
  FileDownload(Download download, Transfers& transfers, const Events& events);

  const Status& status() const { return status_; }
  bool done() const { return done_; }
  bool waiting() const { return waiting_; }  // another process has the lock
  int64_t done_bytes() const;
  int64_t kept_bytes() const { return kept_bytes_; }
  int64_t total_bytes() const { return download_.bytes; }

  // Whether Advance has more to hash at once.
  bool behind() const;

  // Starts a request for the next piece; opens the file before the first one. False: there is none to start now.
  bool StartNext();
  // Continues the hash, writes the record once a second, and ends the file once it is complete.
  void Advance();
  // Writes the record.
  void Save() const;

 private:
  struct PieceState {
    explicit PieceState(const Settings& settings) : patience(settings) {}
    Patience patience;
    bool running = false;
    TimeNs due = 0;
  };
  // A request's piece. A restart makes the pieces of earlier requests invalid.
  struct Ticket {
    size_t piece = 0;
    int generation = 0;
    bool ranged = false, checked = false;
  };
  bool Open();
  void UsePieces();
  Request RequestFor(const std::shared_ptr<Ticket>& ticket);
  bool TakeHead(const Answer& head, Ticket* ticket);
  bool TakeBytes(const Answer& head, std::string_view bytes, Ticket* ticket);
  void TakeEnd(const Answer& answer, const Ticket& ticket);
  void TakeFailure(const Answer& answer, const Ticket& ticket);
  bool Restart();
  bool Fail(Status status);  // returns false
  void Hash(int64_t most_bytes);
  void Complete();

  const Download download_;
  Transfers& transfers_;
  const Events& events_;
  Status status_;
  bool done_ = false, waiting_ = false, noted_ = false;
  int generation_ = 0;
  int64_t kept_bytes_ = 0, hashed_bytes_ = 0, finished_bytes_ = 0;
  TimeNs next_try_ = 0, next_save_ = 0;
  std::unique_ptr<FileLock> lock_;
  std::optional<PartialFile> partial_;
  std::unique_ptr<Digest> digest_;
  std::vector<PieceState> states_;
  std::vector<char> buffer_;  // of the hash
};

}  // namespace tactus::hub
