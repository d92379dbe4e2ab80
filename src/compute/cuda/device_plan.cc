#include "compute/cuda/device_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "compute/cuda/decoder.h"
#include "compute/cuda/device_kv.h"
#include "compute/cuda/step_launcher.h"

namespace tactus::compute::cuda {
namespace {

std::string Size(int64_t bytes) {
  if (bytes < (int64_t{1} << 30)) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (int64_t{1} << 30));
}

int64_t BufferBytes(const ModelConfig& config, const DevicePlanInput& in) {
  CudaExecutorOptions options;
  options.type = in.type;
  options.multiprocessors = in.multiprocessors;
  options.fp8_tokens = in.fp8_tokens;
  options.size.max_step_tokens = in.demand.max_step_tokens;
  options.size.max_step_items = static_cast<int32_t>(std::min(in.demand.max_num_seqs, in.demand.max_step_tokens));
  options.size.max_model_len = in.demand.max_model_len > 0 ? in.demand.max_model_len : config.max_position;
  const DecoderOptions decoder = DecoderOptionsOf(config, options);
  const int64_t second =
      in.overlap ? Decoder::BufferBytes(config, DecoderOverlap::SecondOptions(decoder, in.demand.block_size)) : 0;
  const int64_t sums = in.fp8_tokens ? (in.overlap ? 2 : 1) * kFp8SumBytes : 0;
  return Decoder::BufferBytes(config, decoder) + second + sums +
         SampleScratchBytes(decoder.max_logit_rows, config.vocab_size);
}

// Scratch of products, and the block tables of all live sequences.
int64_t ScratchBytes(const ModelConfig& config, const DevicePlanInput& in) {
  const MemoryDemand& d = in.demand;
  const int64_t slots = d.max_slots > 0 ? d.max_slots : d.max_num_seqs;
  const int64_t blocks = ((d.max_model_len > 0 ? d.max_model_len : config.max_position) - 1) / d.block_size + 1;
  return (in.overlap ? 2 : 1) * kGemmScratchBytes + slots * blocks * int64_t{sizeof(BlockId)};
}

// The part of the device's memory behind all this that KV may take: data of steps and graphs come out of the rest.
int64_t UsableOf(int64_t left_bytes) {
  return left_bytes / 10 * 9;
}

// What requests outside the engine get of the host's memory.
Result<int64_t> PlanFrontEnd(const DevicePlanInput& in, int64_t swap_bytes) {
  const MemoryDemand& d = in.demand;
  if (in.host_free_bytes < 0) return d.front_end_bytes;
  const int64_t left = in.host_free_bytes - swap_bytes - d.rules_bytes;
  const int64_t least = std::min(d.front_end_bytes, kLeastFrontEndBytes);
  if (left < least) {
    return InvalidArgument(
        fmt::format("swap space {} + rules of answers {} + at least {} for requests = {}, but {} of the host's memory "
                    "are available: lower --swap-space, or free memory",
                    Size(swap_bytes), Size(d.rules_bytes), Size(least), Size(swap_bytes + d.rules_bytes + least),
                    Size(in.host_free_bytes)),
        "swap-space");
  }
  return std::min(d.front_end_bytes, left);
}

}  // namespace

Result<MemoryGrant> PlanDeviceMemory(const ModelConfig& c, const DevicePlanInput& in) {
  TACTUS_RETURN_IF_ERROR(ValidateConfig(c));
  const MemoryDemand& d = in.demand;
  if (d.max_model_len > c.max_position) {
    return InvalidArgument(
        fmt::format("--max-model-len {} is beyond the {} tokens that the model was made for; use at most {}",
                    d.max_model_len, c.max_position, c.max_position),
        "max-model-len");
  }
  const int64_t weights = in.weight_bytes, buffers = BufferBytes(c, in), scratch = ScratchBytes(c, in);
  const int64_t left = in.free_bytes - weights - buffers - scratch - d.draft_bytes;
  const std::string draft = d.draft_bytes > 0 ? fmt::format(" + draft model {}", Size(d.draft_bytes)) : "";
  if (left <= 0) {
    return InvalidArgument(
        fmt::format(
            "weights {} + activations {} + scratch {}{} = {}, but {} of the GPU's memory are free: use a "
            "smaller model or --quantization int8 or int4, lower --max-num-batched-tokens or --max-num-seqs, or run on "
            "the CPU with --device cpu",
            Size(weights), Size(buffers), Size(scratch), draft, Size(weights + buffers + scratch + d.draft_bytes),
            Size(in.free_bytes)),
        buffers > weights ? "max-num-batched-tokens" : "model");
  }
  const int64_t block_bytes = KvBlockBytes(c, in.kv_type, d.block_size);
  const int64_t wanted_len = d.max_model_len > 0 ? d.max_model_len : c.max_position;
  const int64_t useful = d.max_num_seqs * ((wanted_len + d.block_size - 1) / d.block_size);
  if (d.kv_bytes > left) {
    return InvalidArgument(
        fmt::format("weights {} + activations {} + scratch {}{} + KV {} are more than the {} of the GPU's memory "
                    "that are free: set --kv-cache-memory to at most {}",
                    Size(weights), Size(buffers), Size(scratch), draft, Size(d.kv_bytes), Size(in.free_bytes),
                    Size(UsableOf(left))),
        "kv-cache-memory");
  }
  MemoryGrant grant;
  const int64_t kv_bytes = d.kv_bytes > 0 ? d.kv_bytes : UsableOf(left);
  grant.num_blocks = kv_bytes / block_bytes;
  if (d.kv_bytes == 0) grant.num_blocks = std::min(grant.num_blocks, useful);
  grant.num_blocks = std::min<int64_t>(grant.num_blocks, INT32_MAX);
  const int64_t capacity = grant.num_blocks * d.block_size;
  if (grant.num_blocks < 1 || d.max_model_len > capacity) {
    const int64_t least = std::max<int64_t>(d.max_model_len, 1);
    const char* const fix = d.kv_bytes > 0 ? "raise --kv-cache-memory"
                                           : "lower --max-num-batched-tokens or --max-num-seqs, or use a smaller model";
    return InvalidArgument(
        fmt::format("{} needs {} of KV, but {} for {} tokens are there: {}",
                    d.max_model_len > 0 ? fmt::format("--max-model-len {}", least) : "the shortest sequence",
                    Size((least + d.block_size - 1) / d.block_size * block_bytes), Size(kv_bytes), capacity,
                    capacity > 0 ? fmt::format("lower --max-model-len to {}, or {}", capacity, fix) : fix),
        "max-model-len");
  }
  grant.swap_blocks = std::min<int64_t>(d.swap_bytes / block_bytes, INT32_MAX);
  grant.max_model_len = std::min(wanted_len, capacity);
  TACTUS_ASSIGN_OR_RETURN(grant.front_end_bytes, PlanFrontEnd(in, grant.swap_blocks * block_bytes));
  grant.kv_bytes = grant.num_blocks * block_bytes;
  grant.total_bytes = weights + buffers + scratch + d.draft_bytes + grant.kv_bytes;
  const std::string swap = grant.swap_blocks > 0 ? fmt::format("  swap space         {:>9} of the host, {} blocks\n",
                                                               Size(grant.swap_blocks * block_bytes), grant.swap_blocks)
                                                 : "";
  const std::string beside = d.draft_bytes > 0 ? fmt::format("  draft model        {:>9}\n", Size(d.draft_bytes)) : "";
  grant.text = fmt::format(
      "memory plan of the GPU\n  weights            {:>9}\n  activations        {:>9}\n  scratch            {:>9}\n"
      "  KV cache           {:>9}, {} blocks\n{}{}  total              {:>9} of the {} that are free\n"
      "  context      {:>15} tokens\n",
      Size(weights), Size(buffers), Size(scratch), Size(grant.kv_bytes), grant.num_blocks, beside, swap,
      Size(grant.total_bytes), Size(in.free_bytes), grant.max_model_len);
  return grant;
}

}  // namespace tactus::compute::cuda
