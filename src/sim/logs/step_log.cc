#include "sim/logs/step_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "sim/logs/log_text.h"

namespace tactus::sim {

Result<std::unique_ptr<StepLog>> StepLog::Create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr)
    return InvalidArgument(fmt::format("cannot write --steps-out '{}': {}", path, std::strerror(errno)), "steps-out");
  std::fputs("replica,start_s,end_s,prompt_tokens,prompt_context_tokens,decodes,decode_context_tokens,budget_tokens\n",
             file);
  return std::unique_ptr<StepLog>(new StepLog(path, file));
}

StepLog::~StepLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void StepLog::Ran(int32_t replica, const StepPlan& plan, TimeNs start_ns, TimeNs end_ns) {
  const StepShape shape = ShapeOf(plan, &chunks_);
  int64_t behind = 0;
  for (const ChunkShape& chunk : shape.chunks) behind += chunk.context_tokens;
  const auto line =
      fmt::format("{},{},{},{},{},{},{},{}\n", replica, ExactSeconds(start_ns), ExactSeconds(end_ns),
                  shape.prefill_tokens(), behind, shape.decodes, shape.decode_context_tokens, plan.budget_tokens);
  std::fwrite(line.data(), 1, line.size(), file_);
}

Status StepLog::Close() {
  const bool failed = std::ferror(file_) != 0;
  const bool unflushed = std::fclose(file_) != 0;
  file_ = nullptr;
  return failed || unflushed ? DataLoss(fmt::format("'{}' could not be written completely", path_)) : Status();
}

}  // namespace tactus::sim
