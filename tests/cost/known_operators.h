// Operators with times simple enough to compute by hand, and a small model made of them.
#pragma once

#include <memory>
#include <vector>

#include "cost/hybrid_model.h"

namespace tactus::cost::known {

// 1 ns per multiplication of a product; small operators take the ns per byte that a test sets.
struct KnownOperators final : OperatorTimes {
  double norm = 0, rope = 0, activation = 0, add = 0, kv_write = 0, embed = 0, sample = 0;  // ns per byte
  double launch = 0;  // per product and small operator, however small
  double gemm = 0, touched = 0, base = 0, adds = 0, alone = 0, decode = 0, beside = 0, all_reduce = 0, exchange = 0,
         exchange_least = 0, send = 0, apart = 0;

  std::function<double(int64_t)> Gemm(const WeightFormat& format, int64_t n, int64_t k) const override {
    return [this, n, k, wide = format.weight_bytes / 2](int64_t m) {
      return launch + gemm * wide * static_cast<double>(m * n * k);
    };
  }
  // 1 ns per touched expert's element, and 1 ns per row's multiplication.
  std::function<double(int64_t)> Experts(const WeightFormat&, const ExpertsShape& s) const override {
    return [this, s](int64_t m) {
      const auto tokens = static_cast<double>(m);
      return s.ExpertElements() * (gemm * s.Rows(tokens) + touched * s.Touched(tokens));
    };
  }
  double PrefillBaseNs(const AttentionShape&) const override { return base; }
  double PrefillAddsNs(const AttentionShape&, double tokens, double context) const override {
    return adds * (tokens + context);
  }
  double PrefillAloneNs(const AttentionShape&, double tokens, double context) const override {
    return alone * (tokens + context);
  }
  double DecodeNs(const AttentionShape&, double batch, double context) const override {
    return decode * (batch + context);
  }
  double DecodeBesideChunkNs(const AttentionShape&, double batch, double context) const override {
    return beside * (batch + context);
  }
  double ElementwiseNs(Elementwise op, double bytes) const override { return launch + StreamNs(op, bytes); }
  double StreamNs(Elementwise op, double bytes) const {
    switch (op) {
      case Elementwise::kEmbed:
        return embed * bytes;
      case Elementwise::kNorm:
        return norm * bytes;
      case Elementwise::kRope:
        return rope * bytes;
      case Elementwise::kActivation:
        return activation * bytes;
      case Elementwise::kAdd:
        return add * bytes;
      case Elementwise::kKvWrite:
        return kv_write * bytes;
      case Elementwise::kSample:
        return sample * bytes;
    }
    return 0;
  }
  double AllReduceNs(double bytes, int32_t gpus) const override { return all_reduce * bytes * gpus; }
  double ExchangeNs(double bytes, int32_t gpus, int32_t tp) const override {
    return exchange_least + exchange * bytes * gpus * tp;
  }
  double SendNs(double bytes, int32_t among) const override { return (send + apart * among) * bytes; }
};

struct Parts {
  UniformShape model;
  Deployment deployment;
  DeviceSpec device;
  KnownOperators operators;
  FitCoverage coverage;
  HostTimes host;

  // Five layers; 8 query heads and 2 KV heads of 4: widths 32 and 8, hidden 16, feed-forward 24, vocabulary 100.
  Parts() {
    model.name = "five";
    model.layers = 5;
    model.hidden = 16;
    model.q_heads = 8;
    model.kv_heads = 2;
    model.head_dim = 4;
    model.ffn = 24;
    model.vocab = 100;
    model.context = 4096;
    device = *FindDevice("h100");
  }
  HybridModel Make() const {
    return HybridModel(deployment, UniformModel(model), device, {"bfloat16", 2, 2, device.bf16_flops}, host,
                       std::make_unique<KnownOperators>(operators), {"", coverage});
  }
};

struct Shape {
  std::vector<ChunkShape> chunks;
  int64_t decodes = 0, context = 0, rows = 0, padded = 0, swapped = 0;
};
inline StepShape Of(const Shape& s) {
  StepShape shape;
  shape.chunks = s.chunks;
  shape.decodes = s.decodes;
  shape.decode_context_tokens = s.context;
  shape.logit_rows = s.rows;
  shape.padded_tokens = s.padded;
  shape.swap_blocks = s.swapped;
  return shape;
}

}  // namespace tactus::cost::known
