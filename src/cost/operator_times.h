// Time of one operator of one layer on one device: the roofline from the device's figures, or a fit of measurements.
// Used only while a CostModel is built, which tabulates the results. All times are nanoseconds as doubles; sizes are
// one device's share.
//
// Thread rule: immutable after construction.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cost/registry.h"

namespace tactus::cost {

// Format of the linear layers' weights, and of their inputs.
struct WeightFormat {
  std::string name;         // bfloat16 | fp8 | int8 | int4
  double weight_bytes = 2;  // per element, scales included
  double activation_bytes = 2;
  double flops = 0;  // peak FLOP/s of the device for it
};
// Matrices that no checkpoint narrows: heads, and the routers of experts.
inline WeightFormat SixteenBits(const DeviceSpec& device) {
  return {"bfloat16", 2, 2, device.bf16_flops};
}
// kInvalidArgument: an unknown dtype.
Result<WeightFormat> FindWeightFormat(const std::string& name, const DeviceSpec& device);

inline constexpr double kActivationBytes = 2;  // bf16 between operators, for any weight format

struct AttentionShape {
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0;
  double kv_bytes = 2;  // per element of K or V: 2, or 1 (fp8)

  bool operator==(const AttentionShape&) const = default;
  double BytesPerToken() const { return 2.0 * static_cast<double>(kv_heads * head_dim) * kv_bytes; }
  // A chunk's arithmetic and memory traffic; causal inside the chunk.
  double ChunkFlops(double tokens, double context) const {
    return 4.0 * static_cast<double>(q_heads * head_dim) * tokens * (context + (tokens + 1) / 2);
  }
  double ChunkBytes(double tokens, double context) const {
    return BytesPerToken() * (context + tokens) + 4.0 * static_cast<double>(q_heads * head_dim) * tokens;
  }
};

// A mixture of gated feed-forward blocks, as the fullest of `ranks` devices computes it: with a share of the experts,
// for the tokens of all devices' replicas. The tokens of a step choose experts evenly and independently, so the devices
// have unequal shares of the rows, and all wait for the one that has most.
struct ExpertsShape {
  int64_t experts = 0, chosen = 0;  // chosen: per token
  int64_t hidden = 0, inner = 0;
  int32_t ranks = 1;
  double spread = 0;  // ExpectedMaximum(ranks), or 0: all devices have the expected shares of the rows

  double ExpertsOfFullest() const { return static_cast<double>((experts + ranks - 1) / ranks); }
  double ExpertElements() const { return 3.0 * static_cast<double>(hidden * inner); }
  // Where each replica has a step of `tokens`, expected: rows of the products on the fullest device, and distinct
  // experts that they use.
  double Rows(double tokens) const;
  double MeanRows(double tokens) const;  // on a device with as many experts
  double Touched(double tokens) const;
};

// The expected largest of `n` independent standard normal values.
double ExpectedMaximum(int32_t n);

enum class Elementwise : uint8_t { kEmbed, kNorm, kRope, kActivation, kAdd, kKvWrite, kSample };
const char* ElementwiseName(Elementwise op);

class OperatorTimes {
 public:
  virtual ~OperatorTimes() = default;
  // [m, k] x [k, n], as a function of m.
  virtual std::function<double(int64_t)> Gemm(const WeightFormat& format, int64_t n, int64_t k) const = 0;
  // The experts' products, their activation, and the sums of their outputs, as a function of the step's tokens.
  virtual std::function<double(int64_t)> Experts(const WeightFormat& format, const ExpertsShape& shape) const = 0;

  // A kernel for several chunks takes max(base + sum of each chunk's `adds`, the longest `alone`): `adds` is a chunk's
  // share of a fully used device, `alone` the time of a kernel with that chunk only. `tokens` queries after `context`
  // cached tokens.
  virtual double PrefillBaseNs(const AttentionShape& shape) const = 0;
  virtual double PrefillAddsNs(const AttentionShape& shape, double tokens, double context) const = 0;
  virtual double PrefillAloneNs(const AttentionShape& shape, double tokens, double context) const = 0;
  // `batch` queries, one per sequence, over `mean_context` tokens of KV each.
  virtual double DecodeNs(const AttentionShape& shape, double batch, double mean_context) const = 0;
  // The same beside prompt chunks: a separate kernel, or a part of the chunks' kernel.
  virtual double DecodeBesideChunkNs(const AttentionShape& shape, double batch, double mean_context) const {
    return DecodeNs(shape, batch, mean_context);
  }

  // `bytes`: read and written, in total.
  virtual double ElementwiseNs(Elementwise op, double bytes) const = 0;
  // Sum of `bytes` over `gpus` neighbouring devices.
  virtual double AllReduceNs(double bytes, int32_t gpus) const = 0;
  // The exchange of experts' tokens: `bytes` are gathered from `gpus` devices, each of another replica of `tp` devices,
  // and as many scattered as sums. These are the two halves of a ring all-reduce.
  virtual double ExchangeNs(double bytes, int32_t gpus, int32_t /*tp*/) const { return AllReduceNs(bytes, gpus); }
  // From one device to another, over the slowest connection between two of `among` neighbours.
  virtual double SendNs(double bytes, int32_t among) const = 0;
};

// Device figures alone. docs/concepts/cost_model.md explains the constants.
std::unique_ptr<OperatorTimes> MakeRoofline(const DeviceSpec& device);

// Rows of the smallest tile of a matrix product. Assumed for every device and library: no profile names its tiles, but
// the times of all measured ones step at multiples of 64 tokens (tools/cost/waves_check.py).
inline constexpr int32_t kLeastTileRows = 64;

// [m, k] x [k, n] of bf16 at `flops` peak: weights' bytes or whole waves of tiles, whichever takes longer. `split_k`:
// tiles may share a column of k, which fills a partial last wave.
double TiledGemmNs(const DeviceSpec& device, const WeightFormat& format, int64_t m, int64_t n, int64_t k, bool split_k);

// `groups` products at once, of `rows` in total: each group has its own weights [k, n] and an even share of the rows.
double GroupedGemmNs(const DeviceSpec& device, const WeightFormat& format, double groups, double rows, int64_t n,
                     int64_t k);

// The ring all-reduce and the plain send, from link figures. Neighbours share the fast link (up to `group`), a node (up
// to `node`) or the network.
// `apart`: every such neighbour takes part.
double RingAllReduceNs(const DeviceSpec& device, double bytes, int32_t gpus, int32_t apart = 1);
double LinkSendNs(const DeviceSpec& device, double bytes, int32_t among);

}  // namespace tactus::cost
