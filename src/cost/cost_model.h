// The step time of any hybrid batch for a model on a device with tensor and pipeline parallelism, built once from named
// parts; asking it is cheap (tables, no allocation). Docs: docs/cost_model.md.
//
// Thread rule: immutable after Create; any thread may ask.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/overlap_fit.h"
#include "base/step_time_model.h"
#include "cost/scaled_operators.h"
#include "tactus/status.h"

namespace tactus::cost {

// What nano-batches reach, from the best that POD-Attention (ASPLOS 2025) measured of both kinds of work in one kernel:
// 1.59 times as fast as one after the other, of at most 2. docs/cost_model.md, "Overlap", says how far that is known.
inline constexpr OverlapFit kNanoOverlap{.linear = 2 / 1.59 - 1};

// Which model runs where, as the command line names it.
struct Deployment {
  std::string model;   // a name of KnownModels(), a model folder or a config.json
  std::string device;  // a name of KnownDevices()
  int32_t tp = 1, pp = 1;
  std::string weight_dtype = "bfloat16";  // bfloat16, fp8, fp8_static, fp8_block, int8, int4, nvfp4
  std::string kv_dtype = "bfloat16";      // bfloat16 | fp8
  // roofline: device figures and the model's config alone. fitted: operator times fitted to measurements where the
  // device has them (else roofline, and Describe says so). auto: fitted where there is one.
  std::string source = "auto";
  // Whose kernels and whose host code: "" (ours), vllm, sglang, trtllm, vllm-ray (vLLM's of 2024, with Ray workers).
  // Picks the coefficient file <device>-<backend>.cost.json where there is one (else <device>.cost.json) and the host's
  // times.
  std::string backend;
  // How many kernels attend for a step's chunks and decodes: one (for all of them), two (one for each kind), auto (as
  // the backend has it). One is slower for the decodes (FindBesideChunk).
  std::string attention_kernels = "auto";
  DurationNs cpu_overhead_ns =
      -1;                   // scheduling and launching per step that no operator hides; -1: the backend's default
  int32_t block_size = 16;  // KV tokens per block, for swap copies
  // off: a step runs one operator after the other. nano: it is split in two, and one half reads the KV of its decodes
  // while the other multiplies (NanoFlow), wherever that is faster.
  std::string overlap = "off";
  OverlapFit overlap_fit = kNanoOverlap;  // of nano
  OperatorScale scale;                    // of all operators, whatever `source` says of them
  // Overrides of the device's and the model's figures; 0: as it is.
  int32_t devices_per_node = 0;
  double network_gbytes_per_s = 0;     // between nodes, one device's share, one direction, as its data sheet has it
  DurationNs network_latency_ns = -1;  // of a message between nodes, beside its bytes; -1: as it is
  int64_t context = 0;                 // tokens that a sequence may have, instead of the model's own; 0: as it is
};

struct NamedEntry {
  std::string name, help;
};
const std::vector<NamedEntry>& KnownModels();
const std::vector<NamedEntry>& KnownDevices();

// KV memory of one replica, by the same plan that `tactus serve` makes: weights, the largest step's activations, the
// rest KV.
struct KvPlan {
  int64_t num_blocks = 0;          // of block_size tokens, over all stages and ranks
  int64_t kv_bytes_per_token = 0;  // of the whole model
  int64_t weight_bytes_per_device = 0;
  int64_t activation_bytes_per_device = 0;
  int64_t kv_bytes_per_device = 0;
};

// The step whose activations a memory plan has room for: of max_step_tokens, or of one context where that is less.
// Where whole prompts of all sequences may share a step: of all tokens that KV memory holds, at most max_step_tokens.
enum class LargestStep : uint8_t { kOfOneContext, kOfAllThatKvHolds };

// A part of a step's time: an operator, over all layers and stages.
struct StepPart {
  std::string name;  // "gate and up products", "attention of chunks"
  std::string kind;  // linear | attention | elementwise | communication | head | host | correction
  double ns = 0;     // below 0: what overlapping saves
};

class CostModel : public StepTimeModel {
 public:
  // kInvalidArgument: unknown model, device or dtype (lists the known ones), heads that tp does not divide, more stages
  // than layers. kNotFound: a config.json that is not there.
  static Result<std::unique_ptr<CostModel>> Create(const Deployment& deployment);

  // kInvalidArgument when the model does not fit its devices: names bytes needed, bytes there, and the tp x pp that
  // fits.
  // `largest`: how many tokens the largest step has.
  virtual Result<KvPlan> PlanKv(double memory_utilization, int32_t block_size, int64_t max_step_tokens,
                                LargestStep largest) const = 0;
  Result<KvPlan> PlanKv(double memory_utilization, int32_t block_size, int64_t max_step_tokens) const {
    return PlanKv(memory_utilization, block_size, max_step_tokens, LargestStep::kOfOneContext);
  }

  // "llama-3.1-8b on h100, tp 1: GEMM fitted (median error 3.1 %), attention fitted (5 %), ..."
  virtual std::string Describe() const = 0;
  // What a step's time is made of; the parts add up to StepTimeNs, but for its rounding.
  virtual std::vector<StepPart> StepParts(const StepShape& shape) const = 0;
  // How far a run went beyond what was measured: "" or "steps of up to 20,480 tokens (measured up to 8,192: 2.5 x
  // beyond)". `most` holds the largest value of each field that was asked for.
  virtual std::string Extrapolation(const StepShape& most) const = 0;
  virtual int64_t max_model_len() const = 0;  // of the model's config, or Deployment::context
  // For MFU and MBU: arithmetic and memory traffic of a step (whole replica), and the peaks of all its devices.
  virtual double StepFlops(const StepShape& shape) const = 0;
  virtual double StepBytes(const StepShape& shape) const = 0;
  virtual double peak_flops() const = 0;      // FLOP/s
  virtual double peak_bandwidth() const = 0;  // bytes/s
  // How a step's arithmetic and its reading of KV add up at best: kNoOverlap with `overlap` off.
  virtual OverlapFit overlap() const = 0;
};

}  // namespace tactus::cost
