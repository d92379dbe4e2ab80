#include "sim/workload/offered_load.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "sim/workload/trace_file.h"

namespace tactus::sim {
namespace {

// Looks up a workload's file by its path, then in the data folder and its traces.
std::string FindFile(const std::string& file, const std::string& data) {
  std::error_code error;
  if (std::filesystem::exists(file, error)) return file;
  const char* env = std::getenv("TACTUS_DATA");
  const std::string folder = !data.empty() ? data : env != nullptr ? env : "";
  if (folder.empty()) return file;
  for (const auto& path : {std::filesystem::path(folder) / file, std::filesystem::path(folder) / "traces" / file}) {
    if (std::filesystem::exists(path, error)) return path.string();
  }
  return file;
}

// Objectives must come from a single source.
Status CheckObjectives(const OfferedLoad& o, const WorkloadSpec& spec) {
  if (o.slo_mix.empty()) return Status();
  if (!o.slo.empty()) return InvalidArgument("give --slo or --slo-mix, not both", "slo-mix");
  if (!o.request_class.empty())
    return InvalidArgument("--slo-mix sets the classes: leave --request-class out", "slo-mix");
  if (spec.rows == nullptr || !spec.rows->states_objectives()) return Status();
  return InvalidArgument(
      fmt::format("'{}' states objectives or classes itself (columns slo_*): leave --slo-mix or the columns out",
                  spec.text),
      "slo-mix");
}

}  // namespace

Result<ParsedLoad> ParseLoad(const OfferedLoad& o, bool offline) {
  ParsedLoad load;
  TACTUS_ASSIGN_OR_RETURN(load.spec, ParseWorkload(o.workload));
  if (!load.spec.file.empty()) load.spec.file = FindFile(load.spec.file, o.data);
  TACTUS_ASSIGN_OR_RETURN(load.arrivals, ParseArrivals(o.arrivals, o.rate));
  if (o.rate > 0 && o.concurrency > 0) return InvalidArgument("give --rate or --concurrency, not both", "rate");
  TACTUS_RETURN_IF_ERROR(LoadRows(&load.spec));
  const bool own_times =
      load.spec.kind == WorkloadSpec::Kind::kTrace && load.spec.rows != nullptr && load.spec.rows->has_arrivals();
  if (offline && (o.rate > 0 || o.concurrency > 0)) {
    return InvalidArgument(
        "all requests of an offline job are present from the start: leave --rate and --concurrency out", "offline");
  }
  if (!offline && o.rate <= 0 && o.concurrency <= 0 && !own_times) {
    return InvalidArgument(
        "give --rate R (open loop) or --concurrency N (closed loop): the workload has no arrival times", "rate");
  }
  TACTUS_RETURN_IF_ERROR(CheckObjectives(o, load.spec));
  return load;
}

}  // namespace tactus::sim
