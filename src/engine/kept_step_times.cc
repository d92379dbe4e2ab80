#include "engine/kept_step_times.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/hash.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "tactus/version.h"

namespace tactus {
namespace {

namespace fs = std::filesystem;

// One place for each model, format, numerics and number of threads.
std::string PlaceOf(const std::string& folder, const std::map<std::string, std::string>& remarks) {
  constexpr Hash128 kKey{0x74616374, 0x7573};
  std::string place;
  for (const char* key : {"model", "threads", "kernels", "dtype"}) place += remarks.at(key) + "\n";
  const std::string name = fs::path(remarks.at("model")).stem().string();
  return fmt::format("{}/{}-{:016x}.steps.csv", folder, name, SipHash128(kKey, place.data(), place.size()).high);
}

Result<std::unique_ptr<cost::StepProfile>> ReadKept(const std::string& path,
                                                    const std::map<std::string, std::string>& remarks) {
  TACTUS_ASSIGN_OR_RETURN(auto kept, cost::LoadStepProfile(path));
  for (const auto& [key, value] : remarks) {
    const auto found = kept->remarks().find(key);
    const std::string had = found != kept->remarks().end() ? found->second : "";
    if (had != value)
      return InvalidArgument(
          fmt::format("they were measured with {} '{}', this is '{}'", key, Printable(had), Printable(value)));
  }
  return kept;
}

Status Keep(const std::string& path, const MeasuredProfile& measured) {
  TACTUS_RETURN_IF_ERROR(CheckWritable(path, "weight-cache"));
  return ReplaceFile(path, ProfileText(measured), "weight-cache");
}

}  // namespace

std::map<std::string, std::string> StepTimeRemarks(const ModelDescription& model, const std::string& weight_format,
                                                   const BackendInfo& computes, const ProfileLimits& limits) {
  std::error_code error;
  std::map<std::string, std::string> remarks = computes.remarks;
  remarks["model"] = fs::weakly_canonical(model.path, error).string();
  remarks["threads"] = fmt::format("{}", computes.workers);
  remarks["kernels"] = computes.kernels;
  remarks["parameters"] = fmt::format("{}", model.config.NumParameters());
  remarks["dtype"] = fmt::format("weights {}, {}, KV {}", weight_format, computes.arithmetic, computes.kv_dtype);
  remarks["build"] = BuildInfo();
  remarks["limits"] = fmt::format("steps of {} tokens, {} decodes, contexts of {}, blocks of {}",
                                  limits.max_step_tokens, limits.max_decodes, limits.max_context, limits.block_size);
  return remarks;
}

Result<std::unique_ptr<cost::StepProfile>> QuickStepTimes(Executor* executor, const ProfileLimits& limits,
                                                          const std::map<std::string, std::string>& remarks,
                                                          const std::string& folder, const std::string& wanted,
                                                          Clock& clock, const Backend::Say& say) {
  const std::string place = folder.empty() ? "" : PlaceOf(folder, remarks);
  if (!place.empty()) {
    auto kept = ReadKept(place, remarks);
    if (kept.ok()) {
      say(fmt::format("step times of an earlier start, {}: {}", place, (*kept)->Describe()));
      return kept;
    }
    if (kept.status().code() != StatusCode::kNotFound)
      say(fmt::format("step times of an earlier start, {}, are not used: {}", place, kept.status().message()));
  }
  say(fmt::format(
      "no step times of this machine are stored ({}): measuring some for about 2 s; `tactus profile` measures "
      "more of them and stores them",
      wanted));
  const TimeNs start_ns = clock.NowNs();
  TACTUS_ASSIGN_OR_RETURN(MeasuredProfile measured, MeasureSteps(executor, limits, QuickProfile(), clock));
  TACTUS_ASSIGN_OR_RETURN(auto fitted, cost::FitStepProfile(measured.samples, remarks));
  say(fmt::format("step times measured in {:.1f} s: {}", static_cast<double>(clock.NowNs() - start_ns) * 1e-9,
                  fitted->Describe()));
  if (place.empty()) return fitted;
  measured.remarks = remarks;
  const Status kept = Keep(place, measured);
  if (!kept.ok()) say("warning: " + kept.message());
  return fitted;
}

}  // namespace tactus
