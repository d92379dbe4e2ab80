// The stored data of a file and of a batch. Plain data; times are Unix seconds, 0: none.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "offline/job/job_store.h"

namespace tactus::offline {

inline constexpr const char* kInputPurpose = "batch";
inline constexpr const char* kOutputPurpose = "batch_output";

struct FileRow {
  std::string id;
  std::string owner;    // who may access it; empty: all clients of a server without keys
  std::string name;     // as named by its client; no path
  std::string purpose;  // one of the two above
  int64_t bytes = 0;
  int64_t created_s = 0;
  int64_t expires_s = 0;
};

// In the order in which a batch may enter them.
enum class BatchState {
  kValidating,  // includes waiting for its turn
  kInProgress,
  kFinalizing,
  kCancelling,
  // Final states:
  kCompleted,
  kFailed,
  kExpired,
  kCancelled,
};
inline constexpr size_t kBatchStates = 8;
inline constexpr const char* kBatchStateNames[kBatchStates] = {"validating", "in_progress", "finalizing", "cancelling",
                                                               "completed",  "failed",      "expired",    "cancelled"};
inline bool Ended(BatchState state) {
  return state >= BatchState::kCompleted;
}

// An error of the whole batch.
struct BatchError {
  std::string code, message, param;
  int64_t line = 0;  // 0: of no single line
};

struct BatchRow {
  std::string id;
  std::string owner;
  std::string endpoint;  // the url of its lines
  std::string input_file_id;
  std::string window;  // as requested
  std::vector<std::pair<std::string, std::string>> metadata;
  BatchState state = BatchState::kValidating;
  std::array<int64_t, kBatchStates> entered_s{};  // time of entering each state
  int64_t expires_s = 0;                          // end of the window
  int64_t results_live_s = 0;                     // lifetime of its results; 0: until they are deleted
  std::vector<BatchError> errors;
  // Drawn with the batch, so that a resumed job writes into the same files; visible as files after the end.
  std::string output_file_id, error_file_id;
  bool has_output = false, has_errors = false;  // after the end: whether the file is not empty
  JobCounts counts;
  int64_t input_tokens = 0, output_tokens = 0;  // of its answers, after the end

  int64_t created_s() const { return entered_s[0]; }
};

// A page of a list, newest first unless `ascending`.
struct Page {
  std::string after;  // the id that precedes the page
  int64_t limit = 20;
  bool ascending = false;
};
template <class Row>
struct Listed {
  std::vector<Row> rows;
  bool more = false;
};

}  // namespace tactus::offline
