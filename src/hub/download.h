// Downloads files in pieces, several at a time, with continuation, locks between processes and a check of the hash.
// A file gets its name only when it is complete and its hash is right. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/transfers.h"
#include "tactus/status.h"

namespace tactus::hub {

struct Download {
  std::string what;  // in messages
  std::string url;
  std::string repository;  // of the hub, whose token the request carries; empty: another server
  std::string path;        // of the complete file
  std::string partial;     // until then
  std::string lock;
  std::string hash;    // as Digest::ForHash; empty: not known
  int64_t bytes = -1;  // -1: not known
};

struct Progress {
  int64_t done_bytes = 0;
  int64_t total_bytes = 0;  // -1: not known
  int64_t kept_bytes = 0;   // of done_bytes, those of an earlier process
  bool waiting = false;     // only for another process
};

struct Events {
  std::function<void(const Progress&)> progress = [](const Progress&) {};  // about ten times a second
  std::function<void(std::string_view)> note = [](std::string_view) {};    // a line: waits, further tries
};

// Returns at the first error; what has arrived is kept for the next call. kResourceExhausted: the disk is or would be
// full. kDataLoss: a hash or size is wrong, or a file cannot be written. Else as repository.h.
Status DownloadAll(std::vector<Download> downloads, Transfers& transfers, const Events& events);

}  // namespace tactus::hub
