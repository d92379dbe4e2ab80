// The coefficient files data/cost/<fit>[-<backend>].cost.json as plain data. data/cost/FORMAT.md defines their members.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cost/json_record.h"
#include "tactus/status.h"

namespace tactus::cost {

struct GemmCurve {
  std::string dtype;
  double n = 0, k = 0;
  Knots efficiency;  // by m
};

// One curve of an attention table: at one context (prefill) or one batch (decode).
struct AttentionCurve {
  double q_heads = 0, kv_heads = 0, head_dim = 0;
  std::string kv_dtype;
  double at = 0;  // context tokens of prefill, prefill_alone; sequences of decode
  Knots knots;    // prefill: chunk -> efficiency; prefill_alone: chunk -> us; decode: context -> efficiency
};

// A mixture of experts: times of steps whose tokens use `touched` different experts, `chosen` per token.
struct ExpertsCurve {
  std::string dtype;
  double hidden = 0, inner = 0, chosen = 0, touched = 0;
  Knots us;  // by tokens
};

struct ElementwiseFit {
  std::string op;
  double overhead_us = 0, efficiency = 1;
};

// An all-reduce, or the exchange of experts' tokens.
struct CollectiveCurve {
  int32_t gpus = 0;
  Knots us;  // by bytes
};

struct FitError {
  std::string op, left_out;  // what was left out of the fit: shape, device, region, ...
  double median = 0, p90 = 0;
  int64_t rows = 0;
};

struct Coefficients {
  std::string device, backend, source;
  double floor_us = 0;
  std::vector<FitError> errors;
  std::vector<GemmCurve> gemm;
  std::vector<ExpertsCurve> experts;  // of one shape and dtype, by rising `touched`
  std::vector<AttentionCurve> prefill, prefill_alone, decode;
  std::vector<ElementwiseFit> elementwise;
  std::vector<CollectiveCurve> all_reduce, exchange;
  Knots send_us;  // by bytes; empty: none
};

// data/cost/hybrid.json: factor on decode attention in a kernel shared with a prompt chunk (tools/cost/hybrid_fit.py).
struct BesideChunk {
  std::string fit;        // the device whose kernels were measured
  AttentionCurve factor;  // knots: batch -> factor; `at` is unused
};
Result<std::vector<BesideChunk>> ParseBesideChunk(std::string_view text, const std::string& name);

// kDataLoss: names the place and the fault.
Result<Coefficients> ParseCoefficients(std::string_view text, const std::string& name);

}  // namespace tactus::cost
