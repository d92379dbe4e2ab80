#include "base/objectives.h"

#include <fmt/format.h>

#include <algorithm>

namespace tactus {
namespace {

double Ms(DurationNs ns) {
  return static_cast<double>(ns) * 1e-6;
}

}  // namespace

std::string ObjectivesText(const Slo& slo) {
  const std::pair<const char*, int64_t> objectives[] = {
      {"TTFT", slo.ttft_ns}, {"gap", slo.tbt_ns}, {"total", slo.jct_ns}};
  std::string text;
  for (const auto& [name, ns] : objectives) {
    if (ns > 0) text += fmt::format("{}{} {:.15g} ms", text.empty() ? "" : ", ", name, Ms(ns));
  }
  return text;
}

DurationNs ShortestStepNs(const StepTimeModel& model) {
  StepShape decode;
  decode.decodes = decode.decode_context_tokens = decode.logit_rows = 1;
  const ChunkShape token{0, 1};
  StepShape prompt;
  prompt.chunks = {&token, 1};
  return std::min(model.StepTimeNs(decode), model.StepTimeNs(prompt));
}

bool IsBelow(const Slo& slo, DurationNs step_ns) {
  const auto below = [step_ns](int64_t objective_ns) { return objective_ns > 0 && objective_ns < step_ns; };
  return below(slo.ttft_ns) || below(slo.tbt_ns) || below(slo.jct_ns);
}

Status CheckObjectives(const Slo& slo, DurationNs floor_ns) {
  const std::pair<const char*, int64_t> stated[] = {
      {"slo.ttft_ms", slo.ttft_ns}, {"slo.tbt_ms", slo.tbt_ns}, {"slo.jct_ms", slo.jct_ns}};
  for (const auto& [field, objective_ns] : stated) {
    if (objective_ns <= 0 || objective_ns >= floor_ns) continue;
    return InvalidArgument(
        fmt::format("{} is {:.3g} and the shortest step of this engine takes {:.3g} ms: no token comes "
                    "sooner; state more than that",
                    field, Ms(objective_ns), Ms(floor_ns)),
        field);
  }
  if (slo.ttft_ns > 0 && slo.jct_ns > 0 && slo.ttft_ns > slo.jct_ns) {
    return InvalidArgument(fmt::format("slo.ttft_ms is {:.6g} and slo.jct_ms {:.6g}: the first token is due after the "
                                       "whole answer; lower the first, or leave one of the two out",
                                       Ms(slo.ttft_ns), Ms(slo.jct_ns)),
                           "slo.ttft_ms");
  }
  return Status();
}

}  // namespace tactus
