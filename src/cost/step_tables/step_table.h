// Step times measured on a machine, as a model: the output of `tactus profile`, or any such table.
//
// File: CSV. Lines that start with '#' are remarks; "# key: value" among them describe the run (model, device, ..., and
// how much single steps varied: step_spread.h). Then the header
//   prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms
// and one row per measured step: one prompt chunk of `prefill_tokens` new tokens after `prefill_context` cached ones
// (0,0: none) together with `decodes` sequences whose contexts (own token included) add up to `decode_context_tokens`.
//
// Thread rule: immutable after Load.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/step_time_model.h"
#include "tactus/status.h"

namespace tactus::cost {

// The longest step that a profile predicts (11.6 days, the longest that its file may state): extrapolation beyond the
// listed points must not exceed 64-bit nanoseconds.
inline constexpr double kLongestStepNs = 1e15;

// Smaller profiles are not fitted.
inline constexpr int64_t kLeastProfileRows = 12;

struct StepSample {
  int32_t prefill_tokens = 0, prefill_context = 0;
  int64_t decodes = 0, decode_context_tokens = 0;
  double step_ms = 0;
};

class StepProfile : public StepTimeModel {
 public:
  // Relative errors, |predicted - measured| / measured: on the rows of the fit, and on rows left out of it (each fold
  // of ten is predicted by a fit of the other nine).
  struct Error {
    double fit_median = 0, left_out_median = 0, left_out_p90 = 0;
    int64_t rows = 0;
  };
  virtual const Error& error() const = 0;
  virtual const std::map<std::string, std::string>& remarks() const = 0;  // "model", "device", ... from the file's head
  // "48 rows: steps of up to 512 prefill tokens, ...; median error 2.1 % (left out 3.0 %)".
  virtual std::string Describe() const = 0;
};

// Also reads plain tables (step_lookup.h), recognised by their header. kNotFound: no such file; kDataLoss: an
// impossible row (file, line, column); kInvalidArgument: too few rows to fit.
Result<std::unique_ptr<StepProfile>> LoadStepProfile(const std::string& path);
// The same from text; `path` is used in messages.
Result<std::unique_ptr<StepProfile>> ParseStepProfile(const std::string& path, std::string_view text);
Result<std::unique_ptr<StepProfile>> FitStepProfile(std::span<const StepSample> samples,
                                                    std::map<std::string, std::string> remarks);

}  // namespace tactus::cost
