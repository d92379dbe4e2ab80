// `tactus profile`: loads a model as a server would and measures the steps of its executor. Also: where profiles lie,
// and whether one fits a model. Caller's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cost/step_table.h"
#include "engine/step_profiler.h"
#include "tactus/options.h"

namespace tactus::engine {

struct ProfileProgress {
  double share = 0;  // of the time or of the rounds, whichever is further on
  int64_t points = 0, of = 0, round = 1;
  DurationNs elapsed_ns = 0;
};

struct ProfileOptions {
  DurationNs time_limit_ns = 120 * kSecond;  // of measuring; loading is not in it
  int64_t max_points = 120;
  int64_t max_rounds = 20;         // over all points, so that a disturbance of seconds does not decide any of them
  int64_t least_points = 1;        // are measured even beyond the time limit
  DurationNs longest_step_ns = 0;  // of a measured step; 0: a thirtieth of the time limit
  DurationNs enough_ns = 40 * kMillisecond;  // for a point in one round
  int64_t max_context = 4096;                // of measured sequences
  // After every point. False: stop, keep what there is.
  std::function<bool(const ProfileProgress&)> progress;
  std::function<void(const std::string&)> say;  // lines of start-up
};

struct MeasuredProfile {
  std::map<std::string, std::string> remarks;
  std::vector<cost::StepSample> samples;       // a median for each point
  std::vector<cost::StepSample> single_steps;  // that the medians are of, one by one
  bool interrupted = false;
};

// What a server measures at its start where nothing is stored: in about two seconds, or as long as least_points take.
ProfileOptions QuickProfile();

// The steps of an executor that has not been used yet, and may be used for anything afterwards. `limits`: what it
// was made for. No remarks.
Result<MeasuredProfile> MeasureSteps(Executor* executor, ProfileLimits limits, const ProfileOptions& options,
                                     Clock& clock);
// The part of an executor that a quick profile looks at: extrapolating from few sequences over short contexts is
// cheaper than filling gigabytes of KV.
ProfileLimits QuickLimits(ProfileLimits limits);

// The token budget and the number of sequences of `engine` bound the steps that are measured. Steps that would take
// more than a thirtieth of the time limit are left out.
Result<MeasuredProfile> ProfileModel(const EngineOptions& engine, const ProfileOptions& options, Clock& clock);

// The model of its samples. How much its single steps vary about that model becomes remarks of *profile
// (cost/step_spread.h). kInvalidArgument: too few rows.
Result<std::unique_ptr<cost::StepProfile>> FitMeasured(MeasuredProfile* profile);

// The file's text: remarks, header, one row per sample (cost/step_table.h).
std::string ProfileText(const MeasuredProfile& profile);

// $cache/profiles/<model>-<threads>t.csv, where `tactus serve` looks when it is not told where.
std::string DefaultProfilePath(const std::string& model_path, int32_t threads);

}  // namespace tactus::engine
