// Operator times from a device's figures alone: the larger of arithmetic over peak and bytes over bandwidth, with the
// tiles and waves of matrix products.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "compute/config/block_work.h"
#include "cost/operator_times.h"

namespace tactus::cost {
namespace {

// Shares of the data sheet's figures that good kernels reach; measurements: docs/concepts/cost_model.md, "Roofline".
constexpr double kGemmEfficiency = 0.80;
constexpr double kWeightReadEfficiency = 0.85;
constexpr double kAttentionEfficiency = 0.55;
constexpr double kStreamEfficiency = 0.80;
// KV reads by one query, few rows at a time.
constexpr double kKvReadEfficiency = 0.80;
// A thread block of attention holds this many queries; a longer context is split over blocks of this many keys.
constexpr double kQueryTile = 128;
constexpr double kKeySplit = 1024;
// Sampling is a chain of small kernels (penalties, softmax, sort or top-k, draw).
constexpr double kSampleKernels = 10;
// Choice of the experts, sorting of the rows, activation, sum.
constexpr double kExpertKernels = 4;

struct Tile {
  int32_t rows, columns;
  double efficiency;  // of the best tile
};
constexpr Tile kTiles[] = {
    {256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.95}, {kLeastTileRows, 128, 0.8}, {kLeastTileRows, 64, 0.65}};
constexpr int32_t kSplits[] = {1, 2, 4, 8};
constexpr int64_t kLeastSplitDepth = 512;

class Roofline final : public OperatorTimes {
 public:
  explicit Roofline(const DeviceSpec& device) : device_(device) {}

  std::function<double(int64_t)> Gemm(const WeightFormat& format, int64_t n, int64_t k) const override {
    return [device = device_, format, n, k](int64_t m) { return TiledGemmNs(device, format, m, n, k, true); };
  }

  std::function<double(int64_t)> Experts(const WeightFormat& format, const ExpertsShape& s) const override {
    return [device = device_, format, s](int64_t m) {
      const auto tokens = static_cast<double>(m);
      const double rows = s.Rows(tokens), touched = s.Touched(tokens);
      // The activation reads gate and up; the sum reads the rows and writes the tokens.
      const double bytes =
          2.0 * (3.0 * rows * static_cast<double>(s.inner) + (rows + tokens) * static_cast<double>(s.hidden));
      return GroupedGemmNs(device, format, touched, rows, 2 * s.inner, s.hidden) +
             GroupedGemmNs(device, format, touched, rows, s.hidden, s.inner) + kExpertKernels * device.launch_ns +
             bytes / (device.bandwidth * kStreamEfficiency) * 1e9;
    };
  }

  double PrefillBaseNs(const AttentionShape&) const override { return 2 * device_.launch_ns; }

  double PrefillAddsNs(const AttentionShape& s, double tokens, double context) const override {
    if (tokens <= 0) return 0;
    const double padded = std::ceil(tokens / kQueryTile) * kQueryTile;
    const double work_ns = s.ChunkFlops(padded, context) / (device_.bf16_flops * kAttentionEfficiency) * 1e9;
    const double memory_ns = s.ChunkBytes(tokens, context) / (device_.bandwidth * kStreamEfficiency) * 1e9;
    return std::max(work_ns, memory_ns);
  }

  double PrefillAloneNs(const AttentionShape& s, double tokens, double context) const override {
    if (tokens <= 0) return 0;
    // One block's queries over one split of the keys cannot be parallelised further.
    const double block_flops =
        4.0 * static_cast<double>(s.head_dim) * kQueryTile * std::min(context + tokens, kKeySplit);
    const double block_ns = block_flops / (device_.bf16_flops * kAttentionEfficiency / device_.sms) * 1e9;
    return PrefillBaseNs(s) + std::max(block_ns, PrefillAddsNs(s, tokens, context));
  }

  double DecodeNs(const AttentionShape& s, double batch, double mean_context) const override {
    if (batch <= 0) return 0;
    const double kv_tokens = batch * mean_context;
    const double memory_ns = s.BytesPerToken() * kv_tokens / (device_.bandwidth * kKvReadEfficiency) * 1e9;
    const double compute_ns = 4.0 * static_cast<double>(s.q_heads * s.head_dim) * kv_tokens /
                              (device_.bf16_flops * kAttentionEfficiency) * 1e9;
    return std::max(memory_ns, compute_ns) + 2 * device_.launch_ns;
  }

  double ElementwiseNs(Elementwise op, double bytes) const override {
    const double kernels = op == Elementwise::kSample ? kSampleKernels : 1;
    return kernels * device_.launch_ns + bytes / (device_.bandwidth * kStreamEfficiency) * 1e9;
  }

  double AllReduceNs(double bytes, int32_t gpus) const override { return RingAllReduceNs(device_, bytes, gpus); }
  double ExchangeNs(double bytes, int32_t gpus, int32_t tp) const override {
    return RingAllReduceNs(device_, bytes, gpus, tp);
  }
  double SendNs(double bytes, int32_t among) const override { return LinkSendNs(device_, bytes, among); }

 private:
  const DeviceSpec device_;
};

}  // namespace

// E max = integral of 1 - F(x)^n over x > 0, less that of F(x)^n over x < 0, where F is the normal distribution.
double ExpectedMaximum(int32_t n) {
  constexpr double kStep = 0.01, kEnd = 8;  // F(-8) is 6e-16
  double sum = 0;
  for (double x = kStep / 2; x < kEnd; x += kStep) {
    const double below = std::erfc(x / std::sqrt(2.0)) / 2;
    sum += 1 - std::pow(1 - below, n) - std::pow(below, n);
  }
  return sum * kStep;
}

// A token gives a device a hypergeometric number of rows: `chosen` of the experts without repetition, of which the
// device has 1 / ranks, or one more where that does not divide. The numbers of all devices add up, so they are
// correlated by -1 / (ranks - 1), which widens the expected largest of them by sqrt(ranks / (ranks - 1)).
double ExpertsShape::MeanRows(double tokens) const {
  return tokens * static_cast<double>(chosen) * ranks * ExpertsOfFullest() / static_cast<double>(experts);
}

double ExpertsShape::Rows(double tokens) const {
  const double mean = MeanRows(tokens);
  if (experts <= 1) return mean;
  const double unchosen = static_cast<double>(experts - chosen) / static_cast<double>(experts - 1);
  const double all = tokens * static_cast<double>(chosen) * ranks;
  return std::min(mean + spread * std::sqrt(mean * unchosen), all);
}

double ExpertsShape::Touched(double tokens) const {
  const double fullness = tokens > 0 ? Rows(tokens) / MeanRows(tokens) : 1;
  return compute::ExpectedExperts(ExpertsOfFullest(), static_cast<double>(chosen) / static_cast<double>(experts),
                                  tokens * ranks * fullness);
}

namespace {

// Whole waves of tiles of `groups` products [m, k] x [k, n].
double WavesNs(const DeviceSpec& d, const WeightFormat& f, int64_t groups, int64_t m, int64_t n, int64_t k,
               bool split_k) {
  double compute_ns = INFINITY;
  for (const Tile& tile : kTiles) {
    const double per_sm = f.flops * kGemmEfficiency * tile.efficiency / d.sms;
    const int64_t tiles = groups * ((m + tile.rows - 1) / tile.rows) * ((n + tile.columns - 1) / tile.columns);
    const double tile_ns = 2.0 * tile.rows * tile.columns * static_cast<double>(k) / per_sm * 1e9;
    for (const int32_t split : kSplits) {
      if (split > 1 && (!split_k || k / split < kLeastSplitDepth)) break;
      const int64_t waves = (tiles * split + d.sms - 1) / d.sms;
      compute_ns = std::min(compute_ns, tile_ns * static_cast<double>(waves) / split);
    }
  }
  return compute_ns;
}

}  // namespace

double TiledGemmNs(const DeviceSpec& d, const WeightFormat& f, int64_t m, int64_t n, int64_t k, bool split_k) {
  const double bytes = f.weight_bytes * static_cast<double>(n * k) + f.activation_bytes * static_cast<double>(m * k) +
                       2.0 * static_cast<double>(m * n);
  const double memory_ns = bytes / (d.bandwidth * kWeightReadEfficiency) * 1e9;
  return std::max(memory_ns, WavesNs(d, f, 1, m, n, k, split_k)) + d.launch_ns;
}

double GroupedGemmNs(const DeviceSpec& d, const WeightFormat& f, double groups, double rows, int64_t n, int64_t k) {
  if (rows <= 0) return 0;
  const double bytes = f.weight_bytes * groups * static_cast<double>(n * k) +
                       rows * (f.activation_bytes * static_cast<double>(k) + 2.0 * static_cast<double>(n));
  const double memory_ns = bytes / (d.bandwidth * kWeightReadEfficiency) * 1e9;
  const auto each = static_cast<int64_t>(std::ceil(rows / groups));
  return std::max(memory_ns, WavesNs(d, f, static_cast<int64_t>(std::ceil(groups)), each, n, k, false)) + d.launch_ns;
}

std::unique_ptr<OperatorTimes> MakeRoofline(const DeviceSpec& device) {
  return std::make_unique<Roofline>(device);
}

const char* ElementwiseName(Elementwise op) {
  switch (op) {
    case Elementwise::kEmbed:
      return "embed";
    case Elementwise::kNorm:
      return "norm";
    case Elementwise::kRope:
      return "rope";
    case Elementwise::kActivation:
      return "act";
    case Elementwise::kAdd:
      return "add";
    case Elementwise::kKvWrite:
      return "kv_write";
    case Elementwise::kSample:
      return "sample";
  }
  return "";
}

Result<WeightFormat> FindWeightFormat(const std::string& name, const DeviceSpec& d) {
  // Without tensor cores for a format, weights are widened on load: the format's bytes, bf16's activations and peak.
  const auto narrow = [&](double weight_bytes, double activation_bytes, double flops) {
    return flops > 0 ? WeightFormat{name, weight_bytes, activation_bytes, flops}
                     : WeightFormat{name, weight_bytes, 2, d.bf16_flops};
  };
  if (name == "bfloat16" || name == "float16" || name == "auto") return WeightFormat{"bfloat16", 2, 2, d.bf16_flops};
  // The activations' scales: computed at run time, stored in the checkpoint, per block of 128.
  if (name == "fp8" || name == "fp8_static" || name == "fp8_block") return narrow(1, 1, d.fp8_flops);
  if (name == "int8") return narrow(1, 1, d.int8_flops);
  // Weights only, one 16-bit scale per 128.
  if (name == "int4") return narrow(0.5 + 2.0 / 128, 2, 0);
  // Four-bit floats with an fp8 scale per 16: only Blackwell multiplies them, at twice its fp8 rate.
  if (name == "nvfp4") return narrow(0.5 + 1.0 / 16, 0.5 + 1.0 / 16, d.fp4 ? 2 * d.fp8_flops : 0);
  return InvalidArgument(
      fmt::format("weight dtype '{}' is not known; known are bfloat16, fp8, fp8_static, fp8_block, int8, int4, nvfp4",
                  name),
      "dtype");
}

}  // namespace tactus::cost
