// `tactus profile`: loads a model as a server would and measures the steps of its executor. Also the default location
// of profiles and the fit of a profile. Caller's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cost/step_tables/measured_overlap.h"
#include "cost/step_tables/step_table.h"
#include "engine/step_times/step_profiler.h"
#include "tactus/options.h"

namespace tactus::engine {

struct ProfileProgress {
  double share = 0;  // of the time or of the rounds, whichever is larger
  int64_t points = 0, of = 0, round = 1;
  DurationNs elapsed_ns = 0;
};

struct ProfileOptions {
  DurationNs time_limit_ns = 120 * kSecond;  // of measuring, without loading
  int64_t max_points = 120;
  int64_t max_rounds = 20;                   // over all points, so that a disturbance of seconds spoils none of them
  int64_t least_points = 1;                  // measured even beyond the time limit
  DurationNs longest_step_ns = 0;            // of a measured step; 0: a thirtieth of the time limit
  DurationNs enough_ns = 40 * kMillisecond;  // for a point in one round
  bool overlap = false;                      // first finds from which size on steps run in two parts, if any do
  int64_t max_context = 0;                   // of measured sequences; 0: the device's (ProfileDefaults)
  // Called after every point. False: stop and keep the points measured so far.
  std::function<bool(const ProfileProgress&)> progress;
  std::function<void(const std::string&)> say;  // receives the lines of start-up
};

struct MeasuredProfile {
  std::map<std::string, std::string> remarks;
  std::vector<cost::StepSample> samples;       // the median of each point
  std::vector<cost::StepSample> single_steps;  // the single measurements behind the medians
  std::vector<cost::SplitSample> split_steps;
  std::optional<cost::MeasuredOverlap> overlap;  // of split_steps; `samples` ran in two parts from its limit on
  bool interrupted = false;
};

// What a server measures at its start if no step times are stored: takes about two seconds, or the time for
// least_points if longer.
ProfileOptions QuickProfile();

// Measures the steps of a fresh executor, which may be used for anything afterwards. `limits`: what the executor was
// created for. With `overlap` its limit of steps in two parts is measured first and set, so that the steps are those of
// a server that reads the limit from the profile; the time limit begins after that. Sets no remarks.
Result<MeasuredProfile> MeasureSteps(Executor* executor, ProfileLimits limits, const ProfileOptions& options,
                                     Clock& clock);
// The part of the limits that a quick profile measures: extrapolating from few sequences over short contexts is cheaper
// than filling gigabytes of KV.
ProfileLimits QuickLimits(ProfileLimits limits);

// The token budget, the number of sequences and the memory of `engine` bound the steps that are measured; where they
// are left open, the device's ProfileDefaults do. Steps that would take more than a thirtieth of the time limit are
// left out.
Result<MeasuredProfile> ProfileModel(const EngineOptions& engine, const ProfileOptions& options, Clock& clock);

// Fits step times to the samples of *profile. Added to the remarks of *profile: the spread of the single steps about
// that fit, and what was measured of steps in two parts (cost/step_tables/step_spread.h, measured_overlap.h).
// kInvalidArgument: too few rows.
Result<std::unique_ptr<cost::StepProfile>> FitMeasured(MeasuredProfile* profile);

// The file's text: remarks, header, one row per sample (cost/step_tables/step_table.h).
std::string ProfileText(const MeasuredProfile& profile);

// $cache/profiles/<model>-<device>.csv, the path that `tactus serve` reads by default. `device`: ProfileDefaults::name.
std::string DefaultProfilePath(const std::string& model_path, const std::string& device);
// The same for the device that these options choose here. Errors as those of MakeBackend (compute/exec).
Result<std::string> DefaultProfilePath(const EngineOptions& options, Clock& clock);

}  // namespace tactus::engine
