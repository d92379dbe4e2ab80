#include "cost/step_tables/step_spread.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "base/printable.h"

namespace tactus::cost {
namespace {

constexpr char kWithPrompts[] = "spread of steps with prompts", kDecodesOnly[] = "spread of steps of decodes only";

DurationNs TimeOf(const StepTimeModel& model, const StepSample& s) {
  const ChunkShape chunk{s.prefill_context, s.prefill_tokens};
  StepShape shape;
  if (s.prefill_tokens > 0) shape.chunks = {&chunk, 1};
  shape.decodes = s.decodes;
  shape.decode_context_tokens = s.decode_context_tokens;
  shape.logit_rows = s.decodes + (s.prefill_tokens > 0);
  return std::max<DurationNs>(1, model.StepTimeNs(shape));
}

double Deviation(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const double v : values) mean += v / n;
  for (const double v : values) squares += (v - mean) * (v - mean) / n;
  return std::min(std::sqrt(squares), kMostSpread);
}

Result<double> ParseSpread(const char* key, const std::string& text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && stop == text.data() + text.size() && value >= 0 && value <= kMostSpread) return value;
  return DataLoss(fmt::format("the remark '{}' is '{}', but a spread is a number between 0 and {:g}", key,
                              Printable(text), kMostSpread));
}

}  // namespace

std::optional<StepSpread> SpreadAbout(const StepTimeModel& model, std::span<const StepSample> single_steps) {
  std::vector<double> with_prompts, decodes_only;
  for (const StepSample& s : single_steps) {
    const double ratio = std::max(1.0, s.step_ms * 1e6) / static_cast<double>(TimeOf(model, s));
    (s.prefill_tokens > 0 ? with_prompts : decodes_only).push_back(std::log(ratio));
  }
  if (with_prompts.empty() && decodes_only.empty()) return std::nullopt;
  return StepSpread{Deviation(with_prompts.empty() ? decodes_only : with_prompts),
                    Deviation(decodes_only.empty() ? with_prompts : decodes_only)};
}

void NoteSpread(const StepSpread& spread, std::map<std::string, std::string>* remarks) {
  (*remarks)[kWithPrompts] = fmt::format("{:.4f}", spread.with_prompts);
  (*remarks)[kDecodesOnly] = fmt::format("{:.4f}", spread.decodes_only);
}

Result<std::optional<StepSpread>> NotedSpread(const std::map<std::string, std::string>& remarks) {
  const auto with_prompts = remarks.find(kWithPrompts), decodes_only = remarks.find(kDecodesOnly);
  if (with_prompts == remarks.end() || decodes_only == remarks.end()) return std::optional<StepSpread>();
  StepSpread spread;
  TACTUS_ASSIGN_OR_RETURN(spread.with_prompts, ParseSpread(kWithPrompts, with_prompts->second));
  TACTUS_ASSIGN_OR_RETURN(spread.decodes_only, ParseSpread(kDecodesOnly, decodes_only->second));
  return std::optional(spread);
}

std::string SpreadText(const StepSpread& spread) {
  return fmt::format("{:.1f} % with prompts, {:.1f} % without", 100 * spread.with_prompts, 100 * spread.decodes_only);
}

}  // namespace tactus::cost
