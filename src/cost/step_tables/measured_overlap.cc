#include "cost/step_tables/measured_overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/printable.h"

namespace tactus::cost {
namespace {

constexpr char kInterference[] = "overlap interference", kLeastTokens[] = "tokens of steps in two parts, least";
constexpr int64_t kMostTokens = 1 << 24;

template <class T>
Result<T> Parse(const char* key, const std::string& text, T least, T most) {
  T value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && stop == text.data() + text.size() && value >= least && value <= most) return value;
  return DataLoss(
      fmt::format("the remark '{}' is '{}', but it is a number between {} and {}", key, Printable(text), least, most));
}

}  // namespace

std::optional<MeasuredOverlap> OverlapOf(std::span<const SplitSample> samples) {
  if (samples.empty()) return std::nullopt;
  std::vector<double> interferences;
  std::vector<int64_t> limits = {1};  // and beyond every sample
  for (const SplitSample& s : samples) {
    interferences.push_back(s.times.Interference());
    limits.push_back(s.tokens + 1);
  }
  std::sort(interferences.begin(), interferences.end());
  std::sort(limits.begin(), limits.end());
  MeasuredOverlap overlap{.interference = interferences[interferences.size() / 2]};
  double best = 0;
  for (const int64_t limit : limits) {
    double total = 0;
    for (const SplitSample& s : samples) total += s.tokens >= limit ? s.times.split / s.times.whole : 1;
    if (limit > 1 && total >= best) continue;
    best = total;
    overlap.least_split_tokens = limit;
  }
  return overlap;
}

void NoteOverlap(const MeasuredOverlap& overlap, std::map<std::string, std::string>* remarks) {
  (*remarks)[kInterference] = fmt::format("{:.4f}", overlap.interference);
  (*remarks)[kLeastTokens] = fmt::format("{}", overlap.least_split_tokens);
}

Result<std::optional<MeasuredOverlap>> NotedOverlap(const std::map<std::string, std::string>& remarks) {
  const auto interference = remarks.find(kInterference), least = remarks.find(kLeastTokens);
  if (interference == remarks.end() || least == remarks.end()) return std::optional<MeasuredOverlap>();
  MeasuredOverlap overlap;
  TACTUS_ASSIGN_OR_RETURN(overlap.interference, Parse<double>(kInterference, interference->second, 0, 1));
  TACTUS_ASSIGN_OR_RETURN(overlap.least_split_tokens, Parse<int64_t>(kLeastTokens, least->second, 1, kMostTokens));
  return std::optional(overlap);
}

}  // namespace tactus::cost
