#include <algorithm>

#include <fmt/format.h>

#include "base/backend.h"
#include "compute/config/config.h"
#include "compute/model/decoder.h"

namespace tactus::compute {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kDefaultKvLimit = 8 * kGiB;

std::string Size(int64_t bytes) {
  if (bytes < (1 << 20)) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024.0);
  if (bytes < kGiB) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / kGiB);
}

// The decoder's allocation for the largest step, by its own count: activations, kernel scratch, and the logits of rows
// that are computed together.
int64_t ActivationBytes(const ModelConfig& c, const MemoryPlanInput& in) {
  DecoderOptions options;
  options.max_tokens = in.max_step_tokens;
  options.max_logit_rows = DecoderLogitRows(c, std::min(in.max_num_seqs, in.max_step_tokens));
  options.threads = in.threads;
  return DecoderBufferBytes(c, options);
}

Status CheckInput(const ModelConfig& c, const MemoryPlanInput& in) {
  TACTUS_RETURN_IF_ERROR(ValidateConfig(c));
  if (in.block_size < 1)
    return InvalidArgument(fmt::format("--block-size is {}; at least 1 is possible", in.block_size), "block-size");
  if (in.max_num_seqs < 1 || in.max_step_tokens < 1 || in.threads < 1) {
    return InvalidArgument(
        fmt::format("a memory plan needs at least 1 sequence, 1 token per step and 1 thread, got {}, {} and {}",
                    in.max_num_seqs, in.max_step_tokens, in.threads));
  }
  if (in.max_num_seqs > (1 << 24) || in.max_step_tokens > (1 << 24)) {
    return InvalidArgument(
        fmt::format("{} sequences or {} tokens per step are beyond 2^24", in.max_num_seqs, in.max_step_tokens));
  }
  if (in.weight_bytes < 0 || in.kv_memory_bytes < 0 || in.swap_bytes < 0 || in.front_end_bytes < 0 ||
      in.max_model_len < 0 || in.available_bytes < 0) {
    return InvalidArgument("sizes of a memory plan cannot be negative");
  }
  if (in.max_model_len > c.max_position) {
    return InvalidArgument(
        fmt::format("--max-model-len {} is beyond the {} tokens that the model was made for; use at most {}",
                    in.max_model_len, c.max_position, c.max_position),
        "max-model-len");
  }
  return Status();
}

}  // namespace

std::string MemoryPlan::ToString() const {
  const std::string swap =
      swap_blocks > 0 ? fmt::format("  swap space   up to {:>9} as needed, {} blocks\n", Size(swap_bytes), swap_blocks)
                      : "";
  const std::string front_end =
      front_end_bytes > 0 ? fmt::format("  front end    up to {:>9} as needed\n", Size(front_end_bytes)) : "";
  return fmt::format(
      "memory plan\n  weights            {:>9}\n  activations        {:>9}\n"
      "  KV cache     up to {:>9} as needed, {} blocks\n{}{}"
      "  total        up to {:>9} of the {} that are available\n  context      {:>15} tokens\n",
      Size(weight_bytes), Size(activation_bytes), Size(kv_bytes), num_blocks, swap, front_end, Size(total_bytes),
      Size(available_bytes), max_model_len);
}

Result<MemoryPlan> PlanMemory(const ModelConfig& c, const MemoryPlanInput& in) {
  TACTUS_RETURN_IF_ERROR(CheckInput(c, in));
  MemoryPlan plan;
  plan.weight_bytes = in.weight_bytes;
  plan.available_bytes = in.available_bytes;
  plan.activation_bytes = ActivationBytes(c, in);
  const int64_t fixed = plan.weight_bytes + plan.activation_bytes;
  if (fixed >= in.available_bytes) {
    const char* advice =
        plan.activation_bytes > plan.weight_bytes
            ? "lower --max-num-batched-tokens or --max-num-seqs"
            : "use smaller weights (--quantization int8 or int4, or a quantised GGUF file; not --dtype float32) or "
              "a model with fewer parameters";
    return InvalidArgument(fmt::format("weights {} + activations {} = {}, but only {} of memory are available: {}",
                                       Size(plan.weight_bytes), Size(plan.activation_bytes), Size(fixed),
                                       Size(in.available_bytes), advice),
                           plan.activation_bytes > plan.weight_bytes ? "max-num-batched-tokens" : "model");
  }
  const int64_t token_bytes = c.KvBytesPerToken(in.kv_dtype);
  const int64_t block_bytes = token_bytes * in.block_size;
  plan.swap_blocks = std::min<int64_t>(in.swap_bytes / block_bytes, INT32_MAX);
  plan.swap_bytes = plan.swap_blocks * block_bytes;
  if (in.swap_bytes > 0 && plan.swap_blocks == 0) {
    return InvalidArgument(fmt::format("--swap-space {} holds no KV block of {}: raise it, or set it to 0",
                                       Size(in.swap_bytes), Size(block_bytes)),
                           "swap-space");
  }
  const int64_t left = in.available_bytes - fixed - plan.swap_bytes;
  if (left <= 0) {
    return InvalidArgument(
        fmt::format("weights {} + activations {} + swap space {}, but only {} of memory are available: lower "
                    "--swap-space",
                    Size(plan.weight_bytes), Size(plan.activation_bytes), Size(plan.swap_bytes),
                    Size(in.available_bytes)),
        "swap-space");
  }
  const int64_t least_front_end = std::min(in.front_end_bytes, kLeastFrontEndBytes);
  if (left <= least_front_end) {
    return InvalidArgument(
        fmt::format("weights {} + activations {}{} leave {} of {} for requests and KV; requests alone need {}: "
                    "lower --max-num-batched-tokens or --max-num-seqs, use smaller weights (--quantization int8 "
                    "or int4), or allow this process {} more memory",
                    Size(plan.weight_bytes), Size(plan.activation_bytes),
                    plan.swap_bytes > 0 ? " + swap space " + Size(plan.swap_bytes) : "", Size(left),
                    Size(in.available_bytes), Size(least_front_end), Size(2 * least_front_end - left)),
        "max-num-batched-tokens");
  }
  if (in.kv_memory_bytes > left - least_front_end && in.kv_memory_bytes <= left) {
    return InvalidArgument(
        fmt::format("KV {} leaves {} of {} for requests, which need {}: set --kv-cache-memory to at most {}",
                    Size(in.kv_memory_bytes), Size(left - in.kv_memory_bytes), Size(in.available_bytes),
                    Size(least_front_end), Size(left - least_front_end)),
        "kv-cache-memory");
  }
  // Where KV memory is automatic, at most a quarter of the remaining memory; where it is given, all that KV leaves.
  plan.front_end_bytes =
      std::min(in.front_end_bytes, in.kv_memory_bytes > 0 ? std::max<int64_t>(0, left - in.kv_memory_bytes)
                                                          : std::max(least_front_end, left / 4));
  if (in.kv_memory_bytes > left) {
    return InvalidArgument(
        fmt::format("weights {} + activations {} + KV {}{} = {}, but only {} of memory are available: set "
                    "--kv-cache-memory to at most {}",
                    Size(plan.weight_bytes), Size(plan.activation_bytes), Size(in.kv_memory_bytes),
                    plan.swap_bytes > 0 ? " + swap space " + Size(plan.swap_bytes) : "",
                    Size(fixed + plan.swap_bytes + in.kv_memory_bytes), Size(in.available_bytes),
                    Size(left - least_front_end)),
        "kv-cache-memory");
  }
  int64_t kv = in.kv_memory_bytes;
  const int64_t wanted_len = in.max_model_len > 0 ? in.max_model_len : c.max_position;
  if (kv == 0) {
    kv = std::min((left - plan.front_end_bytes) / 2, kDefaultKvLimit);
    // Blocks beyond every sequence's full length would never be used.
    const int64_t useful_blocks = in.max_num_seqs * ((wanted_len + in.block_size - 1) / in.block_size);
    kv = std::min(kv / block_bytes, useful_blocks) * block_bytes;
  }
  plan.num_blocks = std::min<int64_t>(kv / block_bytes, INT32_MAX);  // block ids are 32-bit
  plan.kv_bytes = plan.num_blocks * block_bytes;
  const int64_t capacity = plan.num_blocks * in.block_size;
  const int64_t needed = (in.max_model_len + in.block_size - 1) / in.block_size * block_bytes;
  if (plan.num_blocks < 1) {
    return InvalidArgument(
        fmt::format("a KV block of {} tokens takes {} ({} per token), but only {} are planned for KV: raise "
                    "--kv-cache-memory, or lower --block-size",
                    in.block_size, Size(block_bytes), Size(token_bytes), Size(kv)),
        "kv-cache-memory");
  }
  if (in.max_model_len > capacity) {
    return InvalidArgument(fmt::format("--max-model-len {} needs {} of KV ({} per token), but {} hold {} tokens: lower "
                                       "--max-model-len to {}, or raise --kv-cache-memory to {}",
                                       in.max_model_len, Size(needed), Size(token_bytes), Size(plan.kv_bytes), capacity,
                                       capacity, Size(needed)),
                           "max-model-len");
  }
  plan.max_model_len = std::min(wanted_len, capacity);
  plan.total_bytes = fixed + plan.kv_bytes + plan.swap_bytes + plan.front_end_bytes;
  return plan;
}

}  // namespace tactus::compute
