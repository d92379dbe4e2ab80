// What is known of a file and of a batch. Plain data; times are Unix seconds, 0: not.
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
  std::string owner;    // who may see it; empty: everybody, of a server without keys
  std::string name;     // as its client calls it; names nothing here
  std::string purpose;  // one of the two above
  int64_t bytes = 0;
  int64_t created_s = 0;
  int64_t expires_s = 0;
};

// In the order in which a batch may pass them.
enum class BatchState {
  kValidating,  // and waiting for its turn
  kInProgress,
  kFinalizing,
  kCancelling,
  // Its end:
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

// Why a batch failed as a whole.
struct BatchError {
  std::string code, message, param;
  int64_t line = 0;  // 0: of no line
};

struct BatchRow {
  std::string id;
  std::string owner;
  std::string endpoint;  // the url of its lines
  std::string input_file_id;
  std::string window;  // as it was asked for
  std::vector<std::pair<std::string, std::string>> metadata;
  BatchState state = BatchState::kValidating;
  std::array<int64_t, kBatchStates> entered_s{};  // when it came into each state
  int64_t expires_s = 0;                          // of the window
  int64_t results_live_s = 0;                     // how long its results are kept; 0: until they are deleted
  std::vector<BatchError> errors;
  // Drawn with the batch, so that a job that goes on writes into the same; they are files when it has ended.
  std::string output_file_id, error_file_id;
  bool has_output = false, has_errors = false;  // when it has ended: those that are not empty
  JobCounts counts;
  int64_t input_tokens = 0, output_tokens = 0;  // of its answers, when it has ended

  int64_t created_s() const { return entered_s[0]; }
};

// A page of a list, from the newest unless `ascending`.
struct Page {
  std::string after;  // the id before the first
  int64_t limit = 20;
  bool ascending = false;
};
template <class Row>
struct Listed {
  std::vector<Row> rows;
  bool more = false;
};

}  // namespace tactus::offline
