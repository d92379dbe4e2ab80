#include "engine/start/check_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/input_file.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "compute/exec/model_numerics.h"
#include "core/loop/replica.h"
#include "engine/start/start_drafts.h"

namespace tactus::engine {
namespace {

constexpr size_t kMostNameBytes = 256;  // the limit of routers

Status CheckName(const std::string& name) {
  const auto bad = [](const std::string& why) {
    return InvalidArgument("--served-model-name: " + why, "served-model-name");
  };
  if (name.empty()) return bad("a name is empty; each needs a character at least, with commas only between names");
  if (name.size() > kMostNameBytes)
    return bad(fmt::format("a name has {} bytes; at most {} are possible", name.size(), kMostNameBytes));
  if (!IsValidUtf8(name)) return bad(fmt::format("'{}' is not UTF-8", Printable(name)));
  return Status();
}

// Returns an error only if no weight format would make the combination valid on a CPU. A GPU's backend checks its own.
Status CheckNumericsFlags(const EngineOptions& o) {
  if (o.device == "cuda") return Status();
  compute::NumericsOptions asked{o.dtype, o.activation_dtype, o.quantization, o.kv_cache_dtype};
  if (o.device == "auto") asked = compute::WithoutGpuWords(asked);
  std::optional<Status> first;
  for (const compute::DType stored : {compute::DType::kBF16, compute::DType::kF32, compute::DType::kQ8_0}) {
    const auto chosen = compute::ChooseNumerics(asked, stored);
    if (chosen.ok()) return Status();
    if (!first) first = chosen.status();
  }
  return *first;
}

// Rejects choices that no context and no amount of KV memory can satisfy: tries the smallest context with the most
// memory.
Status CheckScheduling(const EngineOptions& o) {
  TACTUS_ASSIGN_OR_RETURN(core::ReplicaConfig asked, core::ReplicaOf(o));
  core::SchedulerLimits& limits = asked.scheduler.limits;
  limits.max_model_len = static_cast<int32_t>(o.max_model_len > 0 ? o.max_model_len : 2);
  limits.blocks_total = std::numeric_limits<int32_t>::max();
  limits.block_size = static_cast<int32_t>(o.block_size);
  return core::Replica::Create(std::move(asked), {}).status();
}

}  // namespace

Result<std::vector<std::string>> ServedNames(const EngineOptions& options) {
  std::vector<std::string> names;
  const auto& given = options.served_model_name;
  if (given.size() == 1 && given[0].empty()) return names;  // an environment variable set to the empty string
  for (const std::string& text : given) {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      std::string name = text.substr(begin, end - begin);
      TACTUS_RETURN_IF_ERROR(CheckName(name));
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
      begin = end + 1;
    }
  }
  return names;
}

Status CheckOptions(const EngineOptions& o) {
  TACTUS_RETURN_IF_ERROR(ServedNames(o).status());
  TACTUS_RETURN_IF_ERROR(CheckScheduling(o));
  TACTUS_RETURN_IF_ERROR(CheckNumericsFlags(o));
  TACTUS_RETURN_IF_ERROR(compute::CheckKernels(o));
  TACTUS_RETURN_IF_ERROR(CheckDraftFlags(o));
  if (!o.kv_cache_dir.empty() && !o.prefix_caching) {
    return InvalidArgument("--kv-cache-dir stores the prefix cache, but --prefix-caching is off; leave one out",
                           "kv-cache-dir");
  }
  for (const auto& [path, option] : {std::pair{&o.chat_template, "chat-template"}, std::pair{&o.profile, "profile"}}) {
    const Status readable = path->empty() ? Status() : CheckReadable(*path);
    if (!readable.ok()) return Status(readable.code(), fmt::format("--{}: {}", option, readable.message()), option);
  }
  return o.trace_out.empty() ? Status() : CheckWritable(o.trace_out, "trace-out");
}

}  // namespace tactus::engine
