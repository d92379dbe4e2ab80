// The step time of any hybrid batch for a model on a device with tensor and pipeline parallelism, built once from named
// parts; queries are cheap (tables, no allocation). Docs: docs/concepts/cost_model.md.
//
// Thread rule: immutable after Create; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/overlap_fit.h"
#include "base/step_time_model.h"
#include "cost/scaled_operators.h"
#include "tactus/status.h"

namespace tactus::cost {

// The gain of nano-batches, from the best measurement in POD-Attention (ASPLOS 2025) of both kinds of work in one
// kernel: 1.59 times as fast as in sequence, of at most 2. docs/concepts/cost_model.md, "Overlap", discusses how
// reliable that is.
inline constexpr OverlapFit kNanoOverlap{.linear = 2 / 1.59 - 1};

// The model and its devices, as named on the command line.
struct Deployment {
  std::string model;   // a name of KnownModels(), a model folder or a config.json
  std::string device;  // a name of KnownDevices()
  int32_t tp = 1, pp = 1;
  // Replicas that share the experts, each with the same step at the same time: a device holds 1 / ep of the experts and
  // computes them for the tokens of all ("expert parallel" over "data parallel").
  int32_t ep = 1;
  std::string weight_dtype = "bfloat16";  // bfloat16, fp8, fp8_static, fp8_block, int8, int4, nvfp4
  std::string kv_dtype = "bfloat16";      // bfloat16 | fp8
  // roofline: device figures and the model's config alone. fitted: operator times fitted to measurements if the device
  // has them (else roofline, as Describe then states). auto: fitted if available.
  std::string source = "auto";
  // Source of kernels and host code: "" (ours), vllm, sglang, trtllm, vllm-ray (vLLM's of 2024, with Ray workers).
  // Selects the coefficient file <device>-<backend>.cost.json if it exists (else <device>.cost.json) and the host's
  // times.
  std::string backend;
  // Attention kernels for a step's chunks and decodes: one (for both), two (one each), auto (as in the backend). One
  // kernel slows the decodes (FindBesideChunk).
  std::string attention_kernels = "auto";
  DurationNs cpu_overhead_ns =
      -1;                   // scheduling and launching per step that no operator hides; -1: the backend's default
  int32_t block_size = 16;  // KV tokens per block, for swap copies
  // off: a step runs one operator after the other. nano: wherever that is faster, a step is split in two, and one half
  // reads the KV of its decodes while the other multiplies (NanoFlow).
  std::string overlap = "off";
  OverlapFit overlap_fit = kNanoOverlap;  // for nano
  OperatorScale scale;                    // for all operators, from any `source`
  // Overrides of the device's and the model's figures; 0: no override.
  int32_t devices_per_node = 0;
  double peer_gbytes_per_s = 0;        // that two devices of a node reach over PCIe, one direction
  DurationNs peer_latency_ns = -1;     // of a message between them, beside its bytes; -1: no override
  double network_gbytes_per_s = 0;     // between nodes, one device's share, one direction, as in its data sheet
  DurationNs network_latency_ns = -1;  // of a message between nodes, beside its bytes; -1: no override
  int64_t context = 0;                 // most tokens of a sequence, instead of the model's own limit; 0: no override
};

struct NamedEntry {
  std::string name, help;
};
const std::vector<NamedEntry>& KnownModels();
const std::vector<NamedEntry>& KnownDevices();

// KV memory of one replica, by the same plan as in `tactus serve`: weights, the largest step's activations, the rest
// KV.
struct KvPlan {
  int64_t num_blocks = 0;          // of block_size tokens, over all stages and ranks
  int64_t kv_bytes_per_token = 0;  // of the whole model
  int64_t weight_bytes_per_device = 0;
  int64_t activation_bytes_per_device = 0;
  int64_t kv_bytes_per_device = 0;
};

// The step that the memory plan's activations must hold: one of max_step_tokens, or of one context if that is less; or,
// where whole prompts of all sequences may share a step, one of all tokens that KV memory holds, at most
// max_step_tokens.
enum class LargestStep : uint8_t { kOfOneContext, kOfAllThatKvHolds };

// A part of a step's time: an operator, over all layers and stages.
struct StepPart {
  std::string name;  // "gate and up products", "attention of chunks"
  std::string kind;  // linear | attention | elementwise | communication | head | host | correction
  double ns = 0;     // below 0: saved by overlap
};

class CostModel : public StepTimeModel {
 public:
  // kInvalidArgument: unknown model, device or dtype (lists the known ones), heads not divisible by tp, more stages
  // than layers. kNotFound: a missing config.json.
  static Result<std::unique_ptr<CostModel>> Create(const Deployment& deployment);

  // kInvalidArgument when the model does not fit its devices: names the bytes needed, the bytes available, and a tp x
  // pp that fits. `largest`: the number of tokens of the largest step.
  virtual Result<KvPlan> PlanKv(double memory_utilization, int32_t block_size, int64_t max_step_tokens,
                                LargestStep largest) const = 0;
  Result<KvPlan> PlanKv(double memory_utilization, int32_t block_size, int64_t max_step_tokens) const {
    return PlanKv(memory_utilization, block_size, max_step_tokens, LargestStep::kOfOneContext);
  }

  // "llama-3.1-8b on h100, tp 1: GEMM fitted (median error 3.1 %), attention fitted (5 %), ..."
  virtual std::string Describe() const = 0;
  // Whether messages pass the PCIe of a node, which Deployment's peer_gbytes_per_s and peer_latency_ns describe.
  virtual bool uses_peers() const = 0;
  // The parts of a step's time; they add up to StepTimeNs, except for rounding.
  virtual std::vector<StepPart> StepParts(const StepShape& shape) const = 0;
  virtual int64_t max_model_len() const = 0;  // of the model's config, or Deployment::context
  // For MFU and MBU: arithmetic and memory traffic of a step (whole replica), and the peaks of all its devices.
  virtual double StepFlops(const StepShape& shape) const = 0;
  virtual double StepBytes(const StepShape& shape) const = 0;
  virtual double peak_flops() const = 0;      // FLOP/s
  virtual double peak_bandwidth() const = 0;  // bytes/s
  // Best-case overlap of a step's arithmetic and its KV reads: kNoOverlap with `overlap` off.
  virtual OverlapFit overlap() const = 0;
};

}  // namespace tactus::cost
