// Request traces and length data sets: a CSV with a header line, or one JSON object per line, gzipped or not; read
// whole and checked before anything runs.
// Columns, in any order: prompt_tokens and output_tokens (required); arrival_s (seconds or dates, non-decreasing; empty
// in all rows of a data set without times; rows count from the first row's time); prefix_hash_ids (space-separated ids
// of blocks of kHashBlockTokens tokens; equal leading ids mean equal text); prefix_id and shared_tokens (the first
// shared_tokens tokens are the same in every row with this prefix_id); slo_ttft_ms, slo_tbt_ms, slo_jct_ms, slo_class,
// priority, predicted_output_tokens and client, whose cells may be empty. Public traces keep their column names
// (kOtherNames). Other columns are ignored. Immutable once read: any thread may share it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::sim {

inline constexpr int32_t kHashBlockTokens = 512;
inline constexpr int64_t kMaxTraceTokens = 1 << 24;  // of one prompt or output; a larger value means a broken file

struct TraceRow {
  TimeNs arrival_ns = -1;     // -1: the file has no arrivals
  int32_t prompt_tokens = 0;  // >= 1
  int32_t output_tokens = 0;  // >= 1
  int64_t prefix_id = -1;
  int32_t shared_tokens = 0;
  int32_t num_hash_ids = 0;
  int64_t first_hash_id = 0;  // index in TraceFile's ids
  Slo slo;
  int32_t slo_class = 0, client = 0;  // indices for TraceFile::text
  int32_t priority = 0;
  int32_t predicted_output_tokens = 0;  // 0: not stated
};

class TraceFile {
 public:
  // kNotFound: no such file. kDataLoss, with file, line and column: a missing column, a cell that is not a number or
  // out of range, a row of another width, decreasing arrivals or arrivals missing in some rows, more hash ids than
  // blocks, an answer due before its first token, no rows.
  static Result<std::shared_ptr<const TraceFile>> Read(const std::string& path);
  // The same from text; `path` for messages.
  static Result<std::shared_ptr<const TraceFile>> Parse(const std::string& path, std::string_view text);

  std::span<const TraceRow> rows() const { return rows_; }
  std::span<const int64_t> hash_ids(const TraceRow& row) const {
    return std::span<const int64_t>(ids_).subspan(static_cast<size_t>(row.first_hash_id),
                                                  static_cast<size_t>(row.num_hash_ids));
  }
  const std::string& text(int32_t index) const { return texts_[static_cast<size_t>(index)]; }  // 0: the empty string
  bool has_arrivals() const { return !rows_.empty() && rows_[0].arrival_ns >= 0; }
  bool shares_text() const { return shares_text_; }              // some row has hash ids or a shared prefix
  bool states_objectives() const { return states_objectives_; }  // some row has an objective or a class
  bool predicts_lengths() const { return predicts_lengths_; }    // some row has predicted_output_tokens
  bool has_high_priority() const { return has_high_priority_; }  // some row's priority is below 0
  int64_t dropped() const { return dropped_; }  // rows with a length of 0, which some public traces contain

 private:
  std::vector<TraceRow> rows_;
  std::vector<int64_t> ids_;
  int64_t dropped_ = 0;
  std::vector<std::string> texts_ = {""};
  bool shares_text_ = false, states_objectives_ = false, predicts_lengths_ = false, has_high_priority_ = false;
  friend class TraceParser;
};

}  // namespace tactus::sim
