// What is kept of a job, in one SQLite file: its input and settings, where its lines lie, which of them have a result
// and where that lies. It knows no text of lines and results, and no engine.
//
// Thread rule: one thread at a time. Invariants: a line has at most one result. What Commit has returned from survives
// the end of the process and of the machine, all of it; what it has not returned from, all or nothing.
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
  bool ok = false;                               // in the output; else in the error file
  int64_t offset = 0;                            // there
  int64_t bytes = 0;                             // with its line feed
  int64_t prompt_tokens = 0, output_tokens = 0;  // of an answer: how long answers turn out, for who plans the rest
};

// What is known of a line.
struct LineState {
  enum State : uint8_t { kWaits, kInOutput, kInErrors, kOtherShard };
  LinePlace place;
  State state = kWaits;
  int64_t output_tokens = 0;  // of its answers
};

// Which lines are another shard's, and what all shards' lines are: equal where every process has cut alike.
struct ShardCut {
  std::vector<int64_t> others;
  uint64_t hash = 0;
  // Lines in any order, but each process in the same.
  void Add(int64_t line, int32_t shard, int32_t own) {
    hash = MixHash(MixHash(hash, static_cast<uint64_t>(line)), static_cast<uint64_t>(shard));
    if (shard != own) others.push_back(line);
  }
};

struct JobCounts {
  // Of the input, without those of other shards; with a result in the output, in the error file.
  int64_t lines = 0, out = 0, errors = 0;
  int64_t elsewhere = 0;  // of other shards
  int64_t done() const { return out + errors; }
  int64_t left() const { return lines - out - errors; }
};

struct JobTokens {  // of all answers
  int64_t prompt = 0, output = 0;
};

class JobStore {
 public:
  // Makes the file where it is absent. kDataLoss: the file is something else. kUnavailable: another process has it.
  static Result<std::unique_ptr<JobStore>> Open(const std::string& path);

  // --- What is known of the job, by name ---
  Result<std::optional<std::string>> Get(std::string_view name);
  Status Set(std::string_view name, std::string_view value);
  Result<int64_t> GetNumber(std::string_view name);  // 0: absent

  // --- The index of the input: begun, every line added in order, ended. What was not ended was never begun. ---
  Result<bool> Indexed();
  Status BeginIndex();
  // Fills in place->duplicate_of where it has a custom_id.
  Status AddLine(LinePlace* place, const std::optional<std::string>& custom_id);
  Status EndIndex();
  void CancelIndex() { database_->RollBack(); }

  // --- Afterwards ---
  // At most so many lines without a result, from the first after line `after` on.
  Result<std::vector<LinePlace>> Waiting(int64_t after, int64_t most);
  // The same of all lines, whatever their state.
  Result<std::vector<LineState>> Lines(int64_t after, int64_t most);
  // Once: lines of other shards wait no more.
  Status SetCut(const ShardCut& cut);
  // The results of a group, and how long both files are with them.
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
  Statement find_id_, add_id_;  // while the index is made
  JobCounts counts_;
};

}  // namespace tactus::offline
