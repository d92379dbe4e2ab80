#include "sim/logs/request_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "sim/logs/log_text.h"

namespace tactus::sim {
namespace {

// Cells must not contain a comma, a quote or a line break (base/csv.h).
std::string CsvCell(std::string text) {
  for (char& c : text) {
    if (c == ',' || c == '"' || static_cast<uint8_t>(c) < 0x20) c = '_';
  }
  return text;
}
// As in a workload's file (docs/reference/workloads.md): empty without an objective.
std::string Milliseconds(DurationNs ns) {
  return ns == 0 ? "" : fmt::format("{}.{:06}", ns / kMillisecond, ns % kMillisecond);
}
std::string ClassAndObjectives(const WorkloadRequest& r) {
  return fmt::format("{},{},{},{}", CsvCell(r.slo_class), Milliseconds(r.slo.ttft_ns), Milliseconds(r.slo.tbt_ns),
                     Milliseconds(r.slo.jct_ns));
}

}  // namespace

Result<std::unique_ptr<RequestLog>> RequestLog::Create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr)
    return InvalidArgument(fmt::format("cannot write --requests-out '{}': {}", path, std::strerror(errno)),
                           "requests-out");
  std::fputs(
      "request,replica,arrival_s,prompt_tokens,cached_tokens,output_tokens,scheduled_s,first_token_s,done_s,"
      "longest_gap_s,preemptions,recomputed_tokens,finish,slo_class,slo_ttft_ms,slo_tbt_ms,slo_jct_ms\n",
      file);
  return std::unique_ptr<RequestLog>(new RequestLog(path, file));
}

RequestLog::~RequestLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void RequestLog::Ended(const WorkloadRequest& r, int32_t replica, const core::RequestDoneEvent& d) {
  const auto line =
      fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", r.index, replica, ExactSeconds(d.arrival_ns),
                  d.prompt_tokens, d.cached_tokens, d.completion_tokens, ExactSeconds(d.scheduled_ns),
                  ExactSeconds(d.first_token_ns), ExactSeconds(d.done_ns), ExactSeconds(d.longest_gap_ns),
                  d.preemptions, d.recomputed_tokens, FinishReasonName(d.finish), ClassAndObjectives(r));
  std::fwrite(line.data(), 1, line.size(), file_);
}

void RequestLog::Refused(const WorkloadRequest& r, TimeNs now_ns) {
  const auto line = fmt::format("{},,{},{},,0,,,{},,,,rejected,{}\n", r.index, ExactSeconds(now_ns), r.prompt_tokens,
                                ExactSeconds(now_ns), ClassAndObjectives(r));
  std::fwrite(line.data(), 1, line.size(), file_);
}

Status RequestLog::Close() {
  const bool failed = std::ferror(file_) != 0;
  const bool unflushed = std::fclose(file_) != 0;
  file_ = nullptr;
  return failed || unflushed ? DataLoss(fmt::format("'{}' could not be written completely", path_)) : Status();
}

}  // namespace tactus::sim
