#include "engine/step_times/kept_step_times.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/cache_folder.h"
#include "base/hash.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "engine/step_times/fingerprint.h"
#include "tactus/version.h"

namespace tactus::engine {
namespace {

namespace fs = std::filesystem;

constexpr Hash128 kKey{0x74616374, 0x7573};
constexpr const char* kEnding = ".steps.csv";
constexpr std::string_view kChecksum = "# checksum: ";
constexpr size_t kMostKept = 64;  // files; the least recently written are removed first
constexpr int64_t kMostFileBytes = int64_t{1} << 20;

// One path for everything that the times depend on except the program: only the newest program's file is kept.
std::string PlaceOf(const std::string& folder, const std::map<std::string, std::string>& remarks) {
  std::string place;
  for (const auto& [key, value] : remarks) {
    if (key != "version" && key != "build") place += key + "\n" + value + "\n";
  }
  const std::string name = fs::path(remarks.at("model")).stem().string();
  return fmt::format("{}/{}-{:016x}{}", folder, name, SipHash128(kKey, place.data(), place.size()).high, kEnding);
}

std::string ChecksumOf(std::string_view text) {
  return fmt::format("{:016x}", SipHash128(kKey, text.data(), text.size()).low);
}

Result<std::unique_ptr<cost::StepProfile>> ReadKept(const std::string& path,
                                                    const std::map<std::string, std::string>& remarks) {
  TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(path, kMostFileBytes));
  const size_t end = text.rfind(kChecksum);
  if (end == std::string::npos || text.substr(end + kChecksum.size()) != ChecksumOf(text.substr(0, end)) + "\n")
    return DataLoss("the file is incomplete: it does not end with its checksum");
  TACTUS_ASSIGN_OR_RETURN(auto kept, cost::ParseStepProfile(path, std::string_view(text).substr(0, end)));
  for (const auto& [key, value] : remarks) {
    const auto found = kept->remarks().find(key);
    const std::string had = found != kept->remarks().end() ? found->second : "";
    if (had != value)
      return InvalidArgument(
          fmt::format("they were measured with {} '{}', this is '{}'", key, Printable(had), Printable(value)));
  }
  return kept;
}

void RemoveOldest(const std::string& folder) {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().string().ends_with(kEnding)) files.emplace_back(entry.last_write_time(error), entry.path());
  }
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i + kMostKept < files.size(); ++i) fs::remove(files[i].second, error);
}

Status Keep(const std::string& path, const MeasuredProfile& measured, const char* option) {
  TACTUS_RETURN_IF_ERROR(CheckWritable(path, option));
  const std::string text = ProfileText(measured);
  TACTUS_RETURN_IF_ERROR(ReplaceFile(path, fmt::format("{}{}{}\n", text, kChecksum, ChecksumOf(text)), option));
  RemoveOldest(fs::path(path).parent_path().string());
  return Status();
}

// The processor itself is in the backend's remarks.
std::string MachineText() {
  const auto cores = static_cast<int64_t>(sysconf(_SC_NPROCESSORS_CONF));
  const int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
  return fmt::format("{} cores, {} GiB", cores, bytes >> 30);
}

}  // namespace

std::map<std::string, std::string> StepTimeRemarks(const compute::ModelDescription& model,
                                                   const std::string& weight_format, const BackendInfo& computes,
                                                   const ProfileLimits& limits) {
  fs::path path(model.path);
  if (!path.has_filename()) path = path.parent_path();
  std::map<std::string, std::string> remarks = computes.remarks;
  remarks["model"] = path.filename().string();
  remarks["content"] = WeightsDigest(model.path);
  remarks["machine"] = MachineText();
  remarks["threads"] = fmt::format("{}", computes.workers);
  remarks["kernels"] = computes.kernels;
  remarks["parameters"] = fmt::format("{}", model.config.NumParameters());
  remarks["dtype"] = fmt::format("weights {}, {}, KV {}", weight_format, computes.arithmetic, computes.kv_dtype);
  remarks["version"] = Version();
  remarks["build"] = BuildInfo();
  remarks["limits"] = fmt::format("steps of {} tokens, {} decodes, contexts of {}, blocks of {}",
                                  limits.max_step_tokens, limits.max_decodes, limits.max_context, limits.block_size);
  return remarks;
}

Result<QuickTimes> QuickStepTimes(Executor* executor, const ProfileLimits& limits,
                                  const std::map<std::string, std::string>& remarks, const EngineOptions& options,
                                  const std::string& wanted, Clock& clock, const Backend::Say& say) {
  const bool asked = !options.weight_cache.empty();
  const std::string place = PlaceOf(asked ? options.weight_cache : CacheFolder() + "/step_times", remarks);
  if (!options.measure_step_times) {
    auto kept = ReadKept(place, remarks);
    if (kept.ok()) {
      say(fmt::format("step times of an earlier start, {}: {}; --measure-step-times measures again", place,
                      (*kept)->Describe()));
      return QuickTimes{std::move(kept).value(), place};
    }
    if (kept.status().code() != StatusCode::kNotFound)
      say(fmt::format("step times of an earlier start, {}, are not used: {}", place, kept.status().message()));
  }
  const std::string why = options.measure_step_times
                              ? std::string("--measure-step-times")
                              : fmt::format("no step times of this machine are stored ({})", wanted);
  say(why + ": measuring some for about 2 s; `tactus profile` measures more of them and stores them");
  const TimeNs start_ns = clock.NowNs();
  TACTUS_ASSIGN_OR_RETURN(MeasuredProfile measured, MeasureSteps(executor, limits, QuickProfile(), clock));
  TACTUS_ASSIGN_OR_RETURN(auto fitted, cost::FitStepProfile(measured.samples, remarks));
  say(fmt::format("step times measured in {:.1f} s: {}", static_cast<double>(clock.NowNs() - start_ns) * 1e-9,
                  fitted->Describe()));
  measured.remarks = remarks;
  const Status kept = Keep(place, measured, asked ? "weight-cache" : "step-times");
  // A read-only cache folder is not an error of the start.
  if (!kept.ok()) say(asked ? "warning: " + kept.message() : "the next start measures again: cannot write " + place);
  return QuickTimes{std::move(fitted), kept.ok() ? place : std::string()};
}

}  // namespace tactus::engine
