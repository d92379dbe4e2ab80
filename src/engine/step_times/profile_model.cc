#include "engine/step_times/profile_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "compute/exec/make_backend.h"
#include "compute/model/catalog.h"
#include "compute/weights/model_description.h"
#include "cost/step_tables/step_spread.h"
#include "engine/step_times/loaded_model.h"
#include "engine/step_times/step_profiler.h"

namespace tactus::engine {
namespace {

constexpr int64_t kSharePerPoint = 30;  // one step may take this part of the time limit
constexpr size_t kSplitPoints = 16;     // that are measured in two parts too

constexpr DurationNs kQuickNs = 2 * kSecond;
constexpr int64_t kQuickPoints = 16;
constexpr int32_t kQuickDecodes = 16, kQuickContext = 512, kQuickSeedTokens = 32;

// The most tokens of a step that takes at most `most_ns`, found by doubling: step time grows at least linearly with
// them. Uses the faster of two runs, because the first run of a size is cold.
Result<int64_t> LargestStep(StepProfiler* profiler, const ProfileLimits& limits, DurationNs most_ns) {
  int64_t tokens = std::min<int64_t>(16, limits.max_step_tokens);
  for (;;) {
    const ProfilePoint prompt{static_cast<int32_t>(tokens), 0, 0, 0};
    TACTUS_ASSIGN_OR_RETURN(const cost::StepSample cold, profiler->Measure(prompt, 1));
    TACTUS_ASSIGN_OR_RETURN(const cost::StepSample warm, profiler->Measure(prompt, 1));
    const double left = static_cast<double>(most_ns) * 1e-6 / std::min(cold.step_ms, warm.step_ms);
    const int64_t next = std::min(2 * tokens, limits.max_step_tokens);
    if (left < 2.2 || next == tokens || next > limits.max_context) {
      return left < 1 ? std::max<int64_t>(1, static_cast<int64_t>(left * static_cast<double>(tokens))) : tokens;
    }
    tokens = next;
  }
}

// Times steps in one part and in two, and sets the limit on tokens from which two are faster.
Status FindSplitLimit(Executor* executor, StepProfiler* profiler, const std::vector<ProfilePoint>& points,
                      const ProfileOptions& options, MeasuredProfile* profile) {
  const ProfileProgress before{.of = static_cast<int64_t>(points.size())};
  for (size_t i = 0; i < std::min(points.size(), kSplitPoints); ++i) {
    profile->interrupted = options.progress && !options.progress(before);
    if (profile->interrupted) return Status();
    std::vector<DurationNs> one;
    TACTUS_RETURN_IF_ERROR(profiler->Visit(points[i], 1, &one));
    const auto split = executor->MeasureOverlap();
    if (split) profile->split_steps.push_back({int64_t{points[i].prefill_tokens} + points[i].decodes, *split});
  }
  profile->overlap = cost::OverlapOf(profile->split_steps);
  if (profile->overlap) executor->SplitStepsFrom(profile->overlap->least_split_tokens);
  return Status();
}

}  // namespace

ProfileOptions QuickProfile() {
  ProfileOptions quick;
  quick.time_limit_ns = kQuickNs;
  quick.max_points = kQuickPoints;
  quick.max_rounds = 3;
  quick.least_points = cost::kLeastProfileRows;
  quick.longest_step_ns = kQuickNs / 10;  // about as long as the steps to be sized
  quick.enough_ns = kQuickNs / 200;
  return quick;
}

ProfileLimits QuickLimits(ProfileLimits limits) {
  limits.max_decodes = std::min(limits.max_decodes, kQuickDecodes);
  limits.max_context = std::min(limits.max_context, kQuickContext);
  limits.seed_tokens = kQuickSeedTokens;
  return limits;
}

Result<MeasuredProfile> ProfileModel(const EngineOptions& engine, const ProfileOptions& options, Clock& clock) {
  TACTUS_ASSIGN_OR_RETURN(LoadedModel loaded, LoadForSteps(engine, options.max_context, options.say, clock));
  ProfileOptions what = options;
  what.overlap = engine.overlap != "off";
  TACTUS_ASSIGN_OR_RETURN(MeasuredProfile profile, MeasureSteps(loaded.executor.get(), loaded.limits, what, clock));
  profile.remarks = std::move(loaded.remarks);
  return profile;
}

Result<MeasuredProfile> MeasureSteps(Executor* executor, ProfileLimits limits, const ProfileOptions& options,
                                     Clock& clock) {
  TimeNs start_ns = clock.NowNs();
  const DurationNs most_ns =
      options.longest_step_ns > 0 ? options.longest_step_ns : options.time_limit_ns / kSharePerPoint;
  StepProfiler profiler(executor, limits);
  TACTUS_ASSIGN_OR_RETURN(const int64_t largest, LargestStep(&profiler, limits, most_ns));
  if (options.say && largest < limits.max_step_tokens) {
    options.say(fmt::format(
        "steps of more than {} tokens would take longer than {:.1f} s each: a longer --time-limit measures them",
        largest, static_cast<double>(most_ns) * 1e-9));
  }
  limits.max_step_tokens = largest;
  const std::vector<ProfilePoint> points = DesignProfile(limits, static_cast<int32_t>(options.max_points));

  MeasuredProfile profile;
  if (options.overlap) {
    const TimeNs before_ns = clock.NowNs();
    TACTUS_RETURN_IF_ERROR(FindSplitLimit(executor, &profiler, points, options, &profile));
    start_ns += clock.NowNs() - before_ns;
  }
  std::vector<std::vector<DurationNs>> times(points.size());
  const DurationNs enough_ns = std::min(options.enough_ns, most_ns);
  ProfileProgress p;
  p.of = static_cast<int64_t>(points.size());
  const auto go_on = [&](int64_t visits) {
    p.elapsed_ns = clock.NowNs() - start_ns;
    p.share = std::min(1.0, std::max(static_cast<double>(visits) / static_cast<double>(options.max_rounds * p.of),
                                     static_cast<double>(p.elapsed_ns) / static_cast<double>(options.time_limit_ns)));
    profile.interrupted = options.progress && !options.progress(p);
    return !profile.interrupted && (p.elapsed_ns < options.time_limit_ns || visits < options.least_points);
  };
  bool more = !profile.interrupted;
  for (int64_t visits = 0; more && visits < options.max_rounds * p.of;) {
    const auto at = static_cast<size_t>(visits % p.of);
    TACTUS_RETURN_IF_ERROR(profiler.Visit(points[at], enough_ns, &times[at]));
    ++visits;
    p.points = std::min(visits, p.of);
    p.round = (visits - 1) / p.of + 1;
    more = go_on(visits);
  }
  for (size_t i = 0; i < points.size() && !times[i].empty(); ++i) {
    for (const DurationNs took : times[i]) profile.single_steps.push_back(StepProfiler::SampleOf(points[i], {took}));
    profile.samples.push_back(StepProfiler::SampleOf(points[i], std::move(times[i])));
  }
  return profile;
}

Result<std::unique_ptr<cost::StepProfile>> FitMeasured(MeasuredProfile* profile) {
  TACTUS_ASSIGN_OR_RETURN(auto fitted, cost::FitStepProfile(profile->samples, profile->remarks));
  const auto spread = cost::SpreadAbout(*fitted, profile->single_steps);
  if (spread) cost::NoteSpread(*spread, &profile->remarks);
  if (profile->overlap) cost::NoteOverlap(*profile->overlap, &profile->remarks);
  return fitted;
}

std::string ProfileText(const MeasuredProfile& profile) {
  std::string text = "# Step times of the engine's executor, medians.\n";
  for (const auto& [key, value] : profile.remarks) text += fmt::format("# {}: {}\n", key, value);
  text += "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n";
  for (const cost::StepSample& s : profile.samples) {
    text += fmt::format("{},{},{},{},{:.4f}\n", s.prefill_tokens, s.prefill_context, s.decodes, s.decode_context_tokens,
                        s.step_ms);
  }
  return text;
}

std::string DefaultProfilePath(const std::string& model_path, const std::string& device) {
  return fmt::format("{}/profiles/{}-{}.csv", CacheFolder(), compute::ModelNameOf(model_path), device);
}

Result<std::string> DefaultProfilePath(const EngineOptions& options, Clock& clock) {
  TACTUS_ASSIGN_OR_RETURN(const std::string path, compute::ResolveModel(options.model));
  TACTUS_ASSIGN_OR_RETURN(const compute::ModelDescription description, compute::DescribeModel(path));
  TACTUS_ASSIGN_OR_RETURN(const auto backend, compute::MakeBackend(options, description, clock));
  return DefaultProfilePath(path, backend->Info().profile.name);
}

}  // namespace tactus::engine
