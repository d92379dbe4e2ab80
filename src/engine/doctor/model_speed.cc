#include "engine/doctor/model_speed.h"

#include <algorithm>

#include "engine/step_times/loaded_model.h"

namespace tactus::engine {
namespace {

constexpr int32_t kContext = 128, kSequences = 16, kPrompt = 512, kShortPrompt = 64;
constexpr DurationNs kEnough = 500 * kMillisecond;  // for a step in one round
constexpr int kStepRounds = 3;                      // so that a disturbance of seconds spoils no step

// The work of one of the steps that the profile counted, all of them equal.
compute::OperatorCost WorkOf(const compute::OperatorProfile& profile) {
  compute::OperatorCost one;
  for (size_t op = 0; op < compute::kDecoderOperators; ++op) {
    one.Add(profile.totals(static_cast<compute::DecoderOperator>(op)).cost);
  }
  const int64_t steps = std::max<int64_t>(1, profile.totals(compute::DecoderOperator::kEmbed).calls);
  for (int64_t* count :
       {&one.bytes, &one.operations, &one.memory_bytes, &one.integer_products, &one.bf16_products, &one.f32_products}) {
    *count /= steps;
  }
  return one;
}

ProfilePoint PointOf(const StepSpeed& step) {
  return {step.prompt_tokens, 0, step.decodes, step.decodes > 0 ? step.context : 0};
}

}  // namespace

Result<ModelSpeed> MeasureModelSpeed(const EngineOptions& given, DurationNs longest_ns, const Backend::Say& say,
                                     Clock& clock) {
  EngineOptions options = given;
  options.max_num_seqs = kSequences;
  options.token_budget = kPrompt;
  compute::OperatorProfile profile(clock);
  say("loading the model");
  TACTUS_ASSIGN_OR_RETURN(const LoadedModel loaded, LoadForSteps(options, kPrompt, say, clock, &profile));
  const BackendInfo info = loaded.backend->Info();
  ModelSpeed speed;
  speed.architecture = loaded.architecture;
  speed.weight_format = loaded.weight_format;
  speed.arithmetic = info.arithmetic;
  speed.hint = info.hint;
  speed.parameters = loaded.parameters;
  speed.threads = info.workers;

  const ProfileLimits& limits = loaded.limits;
  StepProfiler profiler(loaded.executor.get(), limits);
  const int32_t context = std::min(kContext, limits.max_context);
  const auto longest = static_cast<int32_t>(std::min<int64_t>(limits.max_context, limits.max_step_tokens));
  StepSpeed prompt{.prompt_tokens = std::min(kShortPrompt, longest)};
  say("measuring a prompt");
  TACTUS_ASSIGN_OR_RETURN(const cost::StepSample few, profiler.Measure(PointOf(prompt), 1));
  const int32_t most = std::min(kPrompt, longest);
  if (few.step_ms * 1e6 * most / prompt.prompt_tokens < static_cast<double>(longest_ns)) prompt.prompt_tokens = most;
  speed.steps = {{.decodes = 1, .context = context}, {.decodes = kSequences, .context = context}, prompt};

  std::vector<std::vector<DurationNs>> times(speed.steps.size());
  for (int round = 0; round < kStepRounds; ++round) {
    for (size_t i = 0; i < speed.steps.size(); ++i) {
      StepSpeed& step = speed.steps[i];
      say(step.decodes > 0 ? "measuring decodes of " + std::to_string(step.decodes)
                           : "measuring a prompt of " + std::to_string(step.prompt_tokens));
      if (round == 0)
        TACTUS_RETURN_IF_ERROR(profiler.Measure(PointOf(step), 1).status());  // fills the KV that it reads
      profile.Clear();
      TACTUS_RETURN_IF_ERROR(profiler.Visit(PointOf(step), std::min(kEnough, longest_ns), &times[i]));
      step.work = WorkOf(profile);
    }
  }
  for (size_t i = 0; i < speed.steps.size(); ++i) {
    speed.steps[i].step_ms = StepProfiler::SampleOf(PointOf(speed.steps[i]), std::move(times[i])).step_ms;
  }
  speed.resident = ReadResidentMemory();
  return speed;
}

}  // namespace tactus::engine
