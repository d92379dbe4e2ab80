// Vidur's step-time tables (milliseconds by operator) and the formula for a step's duration, in the order of operations
// of its logs, so that the doubles are equal bit for bit. Immutable after loading.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/step_time_model.h"
#include "tactus/status.h"
#include "vidur/vidur_case.h"

namespace tactus::vidur {

struct Operators {  // of one layer, by rounded token count
  double input_layernorm = 0, attn_pre_proj = 0, attn_rope = 0, attn_kv_cache_save = 0, attn_post_proj = 0,
         post_attention_layernorm = 0, mlp_up_proj = 0, mlp_act = 0, mlp_down_proj = 0, add = 0, all_reduce = 0;
};

class Tables {
 public:
  // Reads table_*.csv.gz of a folder. kNotFound, or kDataLoss with file and line.
  static Result<Tables> Load(const std::string& folder, int32_t layers);
  // Generated tables of the same form, for tests without the data.
  static Tables Synthetic(uint64_t seed);

  // The duration of a step with these chunks (context, tokens) and `decodes` decodes; `decode_context`: sum of their
  // contexts.
  double Seconds(std::span<const ChunkShape> chunks, int64_t decodes, int64_t decode_context) const;
  // Whether the tables had every row so far (Vidur stops with an error at a missing row).
  bool covered() const { return covered_; }

 private:
  static constexpr int32_t kStride = 64;  // of contexts
  double At(const std::vector<double>& table, size_t row_size, int64_t row, int64_t column) const;

  int32_t layers_ = 48;
  std::vector<Operators> operators_;  // [tokens / 8 - 1]
  std::vector<double> decode_;        // [batch - 1][kv / 64]
  size_t decode_columns_ = 0;
  std::vector<double> prefill_;  // [kv / 64][chunk - 1]
  size_t prefill_columns_ = 0;
  mutable bool covered_ = true;
};

// The tables as a step-time model, in whole nanoseconds. Each rounding error is carried to the next step: over 30,000
// equal steps half a nanosecond each would add up to 15 us. So, unlike the product's models, it is not pure: one object
// per run, one call per step.
class TableStepTime final : public StepTimeModel {
 public:
  explicit TableStepTime(const Tables* tables) : tables_(*tables) {}
  DurationNs StepTimeNs(const StepShape& shape) const override;

 private:
  const Tables& tables_;
  mutable double owed_ns_ = 0;  // in [-0.5, 0.5]
};

// A gzipped or plain text file. kNotFound or kDataLoss.
Result<std::string> ReadText(const std::string& path);
// requests.csv, steps_<run>.csv.gz and requests_<run>.csv.gz.
Result<std::vector<TraceRequest>> LoadRequests(const std::string& path);
Result<Log> LoadRun(const std::string& steps_path, const std::string& requests_path);

}  // namespace tactus::vidur
