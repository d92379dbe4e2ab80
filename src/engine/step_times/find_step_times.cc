#include "engine/step_times/find_step_times.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <utility>

#include "base/printable.h"
#include "core/loop/replica.h"
#include "core/sched/scheduler.h"
#include "engine/step_times/kept_step_times.h"
#include "engine/step_times/profile_model.h"

namespace tactus::engine {
namespace {

// The remark in which the profile differs from this model and machine; empty: none.
std::string MadeFor(const cost::StepProfile& profile, const compute::ModelDescription& description,
                    const BackendInfo& computes) {
  std::map<std::string, std::string> now = computes.remarks;
  now["model"] = std::filesystem::path(description.path).filename().string();
  for (const auto& [key, value] : now) {
    const auto found = profile.remarks().find(key);
    if (found != profile.remarks().end() && found->second != value)
      return fmt::format("{} '{}', this is '{}'", key, Printable(found->second), value);
  }
  return {};
}

}  // namespace

Result<FoundStepTimes> FindStepTimes(const EngineOptions& o, const compute::ModelDescription& description,
                                     const BackendInfo& computes) {
  FoundStepTimes found;
  TACTUS_ASSIGN_OR_RETURN(const core::ReplicaConfig asked, core::ReplicaOf(o));
  TACTUS_ASSIGN_OR_RETURN(const core::ChoiceTraits traits, core::Scheduler::TraitsOf(asked.scheduler));
  // An offline run uses stored step times, and starts without measuring.
  const bool waits = traits.wants_step_time && !(traits.offline && o.likes_step_times);
  const bool wants = waits || o.speculation != "none";
  if (o.measure_step_times && !o.profile.empty()) {
    return InvalidArgument("--measure-step-times measures, but --profile names a file of step times; leave one out",
                           "measure-step-times");
  }
  if (o.measure_step_times && !wants) {
    found.notes.push_back(
        "warning: --measure-step-times has no effect: neither the scheduler nor --speculation uses step times");
  }
  if (o.profile.empty() && !wants && !o.likes_step_times && o.overlap == "off") return found;
  const std::string path = !o.profile.empty() ? o.profile : DefaultProfilePath(description.path, computes.profile.name);
  if (o.measure_step_times && wants) {
    found.wanted = path;
    return found;
  }
  auto loaded = cost::LoadStepProfile(path);
  if (!loaded.ok()) {
    const bool absent = loaded.status().code() == StatusCode::kNotFound;
    if (o.profile.empty() && !wants) return found;
    // Step times that were not requested do not prevent a start.
    if (!o.profile.empty() || (!absent && traits.wants_step_time && o.tbt_slo.ns != kAutoDuration))
      return loaded.status();
    if (!absent) found.notes.push_back("warning: " + loaded.status().message());
    found.wanted = path;
    return found;
  }
  const std::string other = MadeFor(**loaded, description, computes);
  if (!other.empty() && o.profile.empty() && !wants) return found;
  if (!other.empty()) {
    const std::string what = fmt::format("the step times of '{}' were measured with {}", path, other);
    if (!o.profile.empty()) {
      return InvalidArgument(what + "; measure again with 'tactus profile', or leave --profile out", "profile");
    }
    found.notes.push_back("warning: " + what + "; 'tactus profile' measures and stores new ones");
    found.wanted = path;
    return found;
  }
  found.profile = std::move(loaded).value();
  found.file = path;
  if (o.overlap != "off") {
    const auto overlap = cost::NotedOverlap(found.profile->remarks());
    if (overlap.ok()) {
      found.overlap = *overlap;
    } else {
      const std::string what = fmt::format("the step times of '{}': {}", path, overlap.status().message());
      if (!o.profile.empty()) {
        return InvalidArgument(what + "; measure again with 'tactus profile', or leave --profile out", "profile");
      }
      found.notes.push_back("warning: " + what + "; 'tactus profile' measures and stores new ones");
    }
  }
  found.notes.push_back(fmt::format("step times {}: {}", path, found.profile->Describe()));
  return found;
}

}  // namespace tactus::engine
