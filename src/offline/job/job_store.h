// The state of a job, in one SQLite file: its input and settings, where its lines lie, which of them have a result and
// where it lies. It contains no text of lines or results, and does not depend on the engine.
//
// Thread rule: one thread at a time. Invariants: a line has at most one result. A Commit that has returned survives a
// crash of the process and of the machine completely; one that has not returned survives completely or not at all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "offline/job/sqlite.h"
#include "tactus/status.h"

namespace tactus::offline {

// A line of the input.
struct LinePlace {
  int64_t number = 0;        // from 1
  int64_t offset = 0;        // of its first byte in the input
  int64_t bytes = 0;         // without its line feed
  int64_t duplicate_of = 0;  // the first line with its custom_id; 0: it is the first
};

// Where the result of a line lies.
struct StoredResult {
  int64_t line = 0;
  bool ok = false;                               // in the output; otherwise in the error file
  int64_t offset = 0;                            // in that file
  int64_t bytes = 0;                             // including its line feed
  int64_t prompt_tokens = 0, output_tokens = 0;  // of an answer: observed lengths, to plan the remaining lines
};

// The state of a line.
struct LineState {
  enum State : uint8_t { kWaits, kInOutput, kInErrors, kOtherShard };
  LinePlace place;
  State state = kWaits;
  int64_t output_tokens = 0;  // of its answers
};

// The lines of other shards, and a hash of all shards' lines: equal if every process has assigned them alike.
struct ShardCut {
  std::vector<int64_t> others;
  uint64_t hash = 0;
  // Lines may be added in any order, but in the same order in every process.
  void Add(int64_t line, int32_t shard, int32_t own) {
    hash = MixHash(MixHash(hash, static_cast<uint64_t>(line)), static_cast<uint64_t>(shard));
    if (shard != own) others.push_back(line);
  }
};

struct JobCounts {
  // Lines of the input, without those of other shards; lines with a result in the output, and in the error file.
  int64_t lines = 0, out = 0, errors = 0;
  int64_t elsewhere = 0;  // lines of other shards
  int64_t done() const { return out + errors; }
  int64_t left() const { return lines - out - errors; }
};

struct JobTokens {  // of all answers
  int64_t prompt = 0, output = 0;
};

class JobStore {
 public:
  // Creates the file if missing. kDataLoss: the file is something else. kUnavailable: another process uses it.
  static Result<std::unique_ptr<JobStore>> Open(const std::string& path);

  // --- Values of the job, by name ---
  Result<std::optional<std::string>> Get(std::string_view name);
  Status Set(std::string_view name, std::string_view value);
  Result<int64_t> GetNumber(std::string_view name);  // 0: absent

  // --- The index of the input: begun, lines added in order, ended; rolled back if not ended. ---
  Result<bool> Indexed();
  Status BeginIndex();
  // Sets place->duplicate_of if the line has a custom_id.
  Status AddLine(LinePlace* place, const std::optional<std::string>& custom_id);
  Status EndIndex();
  void CancelIndex() { database_->RollBack(); }

  // --- After the index has ended ---
  // At most `most` lines without a result, in order, after line `after`.
  Result<std::vector<LinePlace>> Waiting(int64_t after, int64_t most);
  // The same for lines in any state.
  Result<std::vector<LineState>> Lines(int64_t after, int64_t most);
  // Call once: lines of other shards no longer wait.
  Status SetCut(const ShardCut& cut);
  // The results of a group, and the resulting lengths of both files.
  Status Commit(std::span<const StoredResult> results, int64_t output_bytes, int64_t errors_bytes);
  const JobCounts& counts() const { return counts_; }
  Result<JobTokens> Tokens();

 private:
  explicit JobStore(std::unique_ptr<Database> database) : database_(std::move(database)) {}
  Status CreateTables();
  Status Prepare();
  Status Count();
  Status WriteCut(const ShardCut& cut);
  Status WriteGroup(std::span<const StoredResult> results, int64_t output_bytes, int64_t errors_bytes);

  std::unique_ptr<Database> database_;
  Statement get_, set_, add_line_, waiting_, lines_, finish_, leave_;
  Statement find_id_, add_id_;  // while the index is built
  JobCounts counts_;
};

}  // namespace tactus::offline
