// Fit: step_ms = sum of non-negative coefficients times physical features, so the model is monotone by construction: a
// constant; the time of the linear operators as a rising piecewise-linear function of the step's tokens; query-key
// pairs and KV reads of the chunk; decodes (also piecewise) and their KV reads. Errors are relative, and outliers (a
// disturbed machine) lose weight.
#include "cost/step_tables/step_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/csv.h"
#include "base/input_file.h"
#include "cost/step_tables/nonnegative_fit.h"
#include "cost/step_tables/step_lookup.h"

namespace tactus::cost {
namespace {

constexpr char kHeader[] = "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms";
constexpr size_t kLeastRows = kLeastProfileRows;
constexpr double kShortestMs = 1e-6;  // a nanosecond; weights of relative errors are 1 / ms^2
constexpr size_t kFolds = 10;
constexpr int kReweightings = 8;
constexpr size_t kPerSegment[] = {2, 4, 8, 16, size_t{1} << 30};  // the last: one straight line

// Slopes between knots: coefficient i is the slope over [knot i, knot i + 1), the last one open.
struct Ramp {
  std::vector<double> knots;
  void Append(double value, std::vector<double>* features) const {
    for (size_t i = 0; i < knots.size(); ++i) {
      const double width = i + 1 < knots.size() ? knots[i + 1] - knots[i] : INFINITY;
      features->push_back(std::clamp(value - knots[i], 0.0, width));
    }
  }
  // Powers of two that separate the measured values, at least `per_segment` distinct values per segment.
  static Ramp For(std::vector<double> values, size_t per_segment) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    Ramp ramp{{0}};
    size_t inside = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double knot = std::exp2(std::floor(std::log2(std::max(values[i], 1.0))));
      if (inside >= per_segment && knot > ramp.knots.back() && values.size() - i >= per_segment) {
        ramp.knots.push_back(knot);
        inside = 0;
      }
      ++inside;
    }
    return ramp;
  }
};

struct Basis {
  Ramp tokens, decodes;

  Basis(std::span<const StepSample> samples, size_t per_segment) {
    std::vector<double> t, d;
    for (const StepSample& s : samples) {
      t.push_back(static_cast<double>(s.prefill_tokens) + static_cast<double>(s.decodes));
      if (s.decodes > 0) d.push_back(static_cast<double>(s.decodes));
    }
    tokens = Ramp::For(std::move(t), per_segment);
    decodes = Ramp::For(std::move(d), per_segment);
  }
  // Features of a step whose chunks have `pairs` query-key pairs and read `chunk_kv` cached tokens.
  void Features(double n, double pairs, double chunk_kv, double d, double decode_kv, std::vector<double>* out) const {
    out->clear();
    out->insert(out->end(), {1.0, pairs, chunk_kv, decode_kv});
    tokens.Append(n, out);
    decodes.Append(d, out);
  }
  void Features(const StepSample& s, std::vector<double>* out) const {
    const double c = s.prefill_tokens, d = static_cast<double>(s.decodes);
    Features(c + d, c * (s.prefill_context + (c + 1) / 2), c > 0 ? s.prefill_context + c : 0, d,
             static_cast<double>(s.decode_context_tokens), out);
  }
  size_t size() const { return 4 + tokens.knots.size() + decodes.knots.size(); }
};

std::vector<double> FitCoefficients(const Basis& basis, std::span<const StepSample> samples) {
  std::vector<double> rows, targets, weights, features;
  for (const StepSample& s : samples) {
    basis.Features(s, &features);
    rows.insert(rows.end(), features.begin(), features.end());
    targets.push_back(s.step_ms);
    weights.push_back(1 / (s.step_ms * s.step_ms));
  }
  std::vector<double> x;
  const std::vector<double> base = weights;
  for (int round = 0; round < kReweightings; ++round) {
    x = NonNegativeLeastSquares(rows, targets, weights, basis.size());
    // Towards least absolute error: a row's weight falls with its residual.
    for (size_t i = 0; i < targets.size(); ++i) {
      double predicted = 0;
      for (size_t j = 0; j < x.size(); ++j) predicted += rows[i * x.size() + j] * x[j];
      const double relative = std::abs(predicted - targets[i]) / targets[i];
      weights[i] = base[i] / std::max(relative, 0.01);
    }
  }
  return x;
}

double Predict(const Basis& basis, const std::vector<double>& x, const StepSample& s, std::vector<double>* scratch) {
  basis.Features(s, scratch);
  double ms = 0;
  for (size_t j = 0; j < x.size(); ++j) ms += (*scratch)[j] * x[j];
  return ms;
}

// predicted / measured - 1| of every row, each predicted by a fit of the other folds.
std::vector<double> LeftOutErrors(std::span<const StepSample> samples, size_t per_segment) {
  std::vector<double> errors, scratch;
  for (size_t fold = 0; fold < kFolds; ++fold) {
    std::vector<StepSample> kept;
    for (size_t i = 0; i < samples.size(); ++i) {
      if (i % kFolds != fold) kept.push_back(samples[i]);
    }
    const Basis basis(kept, per_segment);
    const std::vector<double> x = FitCoefficients(basis, kept);
    for (size_t i = fold; i < samples.size(); i += kFolds) {
      errors.push_back(std::abs(Predict(basis, x, samples[i], &scratch) / samples[i].step_ms - 1));
    }
  }
  return errors;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(std::llround(q * static_cast<double>(values.size() - 1)))];
}

// A piecewise-linear function of a count, as the sum at each knot and the slope after it.
struct RampSum {
  std::vector<double> knots, at, slope;
  RampSum() = default;
  RampSum(const Ramp& ramp, const double* slopes) : knots(ramp.knots), slope(slopes, slopes + ramp.knots.size()) {
    double sum = 0;
    for (size_t i = 0; i < knots.size(); ++i) {
      at.push_back(sum);
      if (i + 1 < knots.size()) sum += slope[i] * (knots[i + 1] - knots[i]);
    }
  }
  double At(double value) const {
    size_t i = knots.size() - 1;
    while (i > 0 && knots[i] > value) --i;
    return at[i] + slope[i] * (value - knots[i]);
  }
};

class FittedProfile final : public StepProfile {
 public:
  FittedProfile(std::span<const StepSample> samples, std::map<std::string, std::string> remarks)
      : remarks_(std::move(remarks)) {
    // The number of bends that predicts left-out rows best: a noisy or small profile gets straight lines.
    std::vector<double> left_out;
    size_t per_segment = 0;
    for (const size_t candidate : kPerSegment) {
      std::vector<double> errors = LeftOutErrors(samples, candidate);
      if (per_segment == 0 || Mean(errors) < Mean(left_out)) per_segment = candidate, left_out = std::move(errors);
    }
    const Basis basis(samples, per_segment);
    const std::vector<double> x = FitCoefficients(basis, samples);
    constant_ns_ = x[0] * 1e6;
    pair_ns_ = x[1] * 1e6;
    chunk_kv_ns_ = x[2] * 1e6;
    decode_kv_ns_ = x[3] * 1e6;
    std::vector<double> slopes(x.begin() + 4, x.end());
    for (double& s : slopes) s *= 1e6;
    tokens_ns_ = RampSum(basis.tokens, slopes.data());
    decodes_ns_ = RampSum(basis.decodes, slopes.data() + basis.tokens.knots.size());
    MeasureErrors(basis, x, samples, left_out);
    for (const StepSample& s : samples) {
      most_.prefill_tokens = std::max(most_.prefill_tokens, s.prefill_tokens);
      most_.prefill_context = std::max(most_.prefill_context, s.prefill_context);
      most_.decodes = std::max(most_.decodes, s.decodes);
      most_.decode_context_tokens = std::max(most_.decode_context_tokens, s.decode_context_tokens);
    }
  }

  DurationNs StepTimeNs(const StepShape& shape) const override {
    double ns = constant_ns_;
    int64_t prefill = 0;
    for (const ChunkShape& c : shape.chunks) {
      const double tokens = c.tokens, context = c.context_tokens;
      ns += pair_ns_ * tokens * (context + (tokens + 1) / 2) + chunk_kv_ns_ * (context + tokens);
      prefill += c.tokens;
    }
    const double n = static_cast<double>(prefill + shape.decodes + shape.padded_tokens);
    ns += tokens_ns_.At(n) + decodes_ns_.At(static_cast<double>(shape.decodes));
    ns += decode_kv_ns_ * static_cast<double>(shape.decode_context_tokens);
    return std::llround(std::min(ns, kLongestStepNs));
  }

  const Error& error() const override { return error_; }
  const std::map<std::string, std::string>& remarks() const override { return remarks_; }

  std::string Describe() const override {
    return fmt::format(
        "{} measured steps of up to {} prompt tokens behind {}, {} decodes over {} KV tokens; median error {:.1f} % "
        "(left out: {:.1f} %, P90 {:.1f} %)",
        error_.rows, most_.prefill_tokens, most_.prefill_context, most_.decodes, most_.decode_context_tokens,
        100 * error_.fit_median, 100 * error_.left_out_median, 100 * error_.left_out_p90);
  }

  std::string Extrapolation(const StepShape& asked) const override {
    std::string beyond;
    const auto note = [&](const char* what, int64_t value, int64_t measured) {
      if (value <= measured) return;
      beyond += fmt::format(
          "{}{} {} (measured up to {}{})", beyond.empty() ? "" : "; ", what, value, measured,
          measured > 0 ? fmt::format(": {:.1f} x beyond", static_cast<double>(value) / static_cast<double>(measured))
                       : "");
    };
    int64_t context = 0;
    for (const ChunkShape& c : asked.chunks) context = std::max<int64_t>(context, c.context_tokens);
    note("prompt tokens per step", asked.prefill_tokens(), most_.prefill_tokens);
    note("a chunk's context of", context, most_.prefill_context);
    note("decodes", asked.decodes, most_.decodes);
    note("KV tokens of decodes", asked.decode_context_tokens, most_.decode_context_tokens);
    return beyond;
  }

 private:
  void MeasureErrors(const Basis& basis, const std::vector<double>& x, std::span<const StepSample> samples,
                     const std::vector<double>& left_out) {
    std::vector<double> fit, scratch;
    for (const StepSample& s : samples) fit.push_back(std::abs(Predict(basis, x, s, &scratch) / s.step_ms - 1));
    error_.rows = static_cast<int64_t>(samples.size());
    error_.fit_median = Quantile(fit, 0.5);
    error_.left_out_median = Quantile(left_out, 0.5);
    error_.left_out_p90 = Quantile(left_out, 0.9);
  }

  double constant_ns_ = 0, pair_ns_ = 0, chunk_kv_ns_ = 0, decode_kv_ns_ = 0;
  RampSum tokens_ns_, decodes_ns_;
  StepSample most_;
  Error error_;
  std::map<std::string, std::string> remarks_;
};

// The fields of a line; kDataLoss if their number differs from `header`'s.
Result<std::vector<std::string_view>> Split(std::string_view line, const std::string& where, std::string_view header) {
  std::vector<std::string_view> fields;
  SplitCells(line, &fields);
  for (std::string_view& field : fields) field = Trimmed(field);
  const size_t wanted = static_cast<size_t>(std::count(header.begin(), header.end(), ',')) + 1;
  if (fields.size() != wanted) return DataLoss(fmt::format("{}: {} columns are expected ({})", where, wanted, header));
  return fields;
}

Result<double> Number(std::string_view field, const std::string& where, size_t column, const char* what, double most) {
  double value = 0;
  const auto [stop, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || stop != field.data() + field.size() || !(value >= 0 && value <= most)) {
    return DataLoss(
        fmt::format("{}, column {}: '{}' is not a {} between 0 and {:.0f}", where, column, field, what, most));
  }
  return value;
}

Result<StepSample> ParseRow(std::string_view line, const std::string& where) {
  constexpr double kLimits[] = {1 << 24, 1 << 24, 1 << 24, 1e12, 1e9};
  constexpr const char* kNames[] = {"prefill_tokens", "prefill_context", "decodes", "decode_context_tokens", "step_ms"};
  TACTUS_ASSIGN_OR_RETURN(const std::vector<std::string_view> fields, Split(line, where, kHeader));
  double values[5] = {};
  for (size_t i = 0; i < 5; ++i) {
    TACTUS_ASSIGN_OR_RETURN(values[i], Number(fields[i], where, i + 1, kNames[i], kLimits[i]));
  }
  StepSample s{static_cast<int32_t>(values[0]), static_cast<int32_t>(values[1]), static_cast<int64_t>(values[2]),
               static_cast<int64_t>(values[3]), values[4]};
  if (s.step_ms < kShortestMs)
    return DataLoss(fmt::format("{}, column 5: a step takes {:g} ms or longer", where, kShortestMs));
  if (s.prefill_tokens == 0 && s.decodes == 0) return DataLoss(where + ": a step without a token");
  if (s.decode_context_tokens < s.decodes) {
    return DataLoss(fmt::format("{}, column 4: {} decodes read at least one KV token each, not {}", where, s.decodes,
                                s.decode_context_tokens));
  }
  return s;
}

Result<LookupRow> ParseLookupRow(std::string_view line, const std::string& where) {
  TACTUS_ASSIGN_OR_RETURN(const std::vector<std::string_view> fields, Split(line, where, kLookupHeader));
  LookupRow row;
  row.table = std::string(fields[0]);
  row.where = where;
  TACTUS_ASSIGN_OR_RETURN(row.a, Number(fields[1], where, 2, "count", 1e9));
  TACTUS_ASSIGN_OR_RETURN(row.b, Number(fields[2], where, 3, "context", 1e9));
  TACTUS_ASSIGN_OR_RETURN(row.ms, Number(fields[3], where, 4, "time in ms", 1e9));
  return row;
}

}  // namespace

Result<std::unique_ptr<StepProfile>> FitStepProfile(std::span<const StepSample> samples,
                                                    std::map<std::string, std::string> remarks) {
  if (samples.size() < kLeastRows) {
    return InvalidArgument(
        fmt::format("a step profile of {} rows is too small to fit; measure at least {}", samples.size(), kLeastRows));
  }
  return std::unique_ptr<StepProfile>(std::make_unique<FittedProfile>(samples, std::move(remarks)));
}

Result<std::unique_ptr<StepProfile>> LoadStepProfile(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;  // a million rows
  const auto text = ReadInputFile(path, kMostBytes);
  if (!text.ok()) return Status(text.status().code(), "step profile: " + text.status().message(), "cost");
  return ParseStepProfile(path, *text);
}

Result<std::unique_ptr<StepProfile>> ParseStepProfile(const std::string& path, std::string_view rest) {
  std::map<std::string, std::string> remarks;
  std::vector<StepSample> samples;
  std::vector<LookupRow> points;
  std::string header;
  int64_t number = 0;
  while (!rest.empty()) {
    ++number;
    const std::string_view text = Trimmed(TakeLine(&rest));
    if (text.empty()) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    if (text[0] == '#') {
      const size_t colon = text.find(':');
      if (colon != std::string_view::npos)
        remarks[std::string(Trimmed(text.substr(1, colon - 1)))] = std::string(Trimmed(text.substr(colon + 1)));
    } else if (header.empty()) {
      if (text != kHeader && text != kLookupHeader) {
        return DataLoss(fmt::format("{}: the header is '{}', not '{}' (measured steps) or '{}' (tables)", where,
                                    text.substr(0, 200), kHeader, kLookupHeader));
      }
      header = text;
    } else if (header == kHeader) {
      TACTUS_ASSIGN_OR_RETURN(const StepSample sample, ParseRow(text, where));
      samples.push_back(sample);
    } else {
      TACTUS_ASSIGN_OR_RETURN(LookupRow row, ParseLookupRow(text, where));
      points.push_back(std::move(row));
    }
  }
  if (header.empty())
    return DataLoss(
        fmt::format("{}: no header line '{}' (measured steps) or '{}' (tables)", path, kHeader, kLookupHeader));
  Result<std::unique_ptr<StepProfile>> made =
      header == kHeader ? FitStepProfile(samples, std::move(remarks)) : MakeStepLookup(points, std::move(remarks));
  // An error in a row already names the file.
  if (!made.ok() && made.status().message().find(path) != 0)
    return Status(made.status().code(), path + ": " + made.status().message(), "cost");
  return made;
}

}  // namespace tactus::cost
