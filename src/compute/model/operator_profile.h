// Time of a forward pass per operator, with the bytes it must move and the arithmetic it must do, counted from shapes,
// so that a measurement can report each operator's share of the machine's limits. Only `tactus doctor` and benchmarks
// enable it; one thread (the decoder's).
#pragma once

#include <array>
#include <cstdint>

#include "base/clock.h"
#include "compute/kernels/packed/packed.h"

namespace tactus::compute {

enum class DecoderOperator : uint8_t {
  kEmbed,
  kRound,
  kQkv,
  kRopeStore,
  kAttention,
  kOut,
  kRouter,
  kExperts,
  kGated,
  kDown,
  kLogits
};
inline constexpr size_t kDecoderOperators = 11;
inline constexpr std::array<const char*, kDecoderOperators> kDecoderOperatorNames = {
    "embed",  "norm + round", "qkv",       "rope + store", "attention", "out",
    "router", "experts",      "gate + up", "down",         "logits"};

struct OperatorCost {
  int64_t bytes = 0;         // weights, KV and activations, each read or written once
  int64_t operations = 0;    // multiplications and additions
  int64_t memory_bytes = 0;  // of `bytes`: weights and KV alone; activations stay in the caches
  // Of `operations`, products by the values that they multiply.
  int64_t integer_products = 0, bf16_products = 0, f32_products = 0;

  void AddProducts(TokenValues values, int64_t count) {
    operations += count;
    (values == TokenValues::kInt8   ? integer_products
     : values == TokenValues::kBF16 ? bf16_products
                                    : f32_products) += count;
  }
  void Add(const OperatorCost& other) {
    bytes += other.bytes;
    operations += other.operations;
    memory_bytes += other.memory_bytes;
    integer_products += other.integer_products;
    bf16_products += other.bf16_products;
    f32_products += other.f32_products;
  }
};

class OperatorProfile {
 public:
  struct Totals {
    int64_t calls = 0;
    DurationNs time_ns = 0;
    OperatorCost cost;
  };
  explicit OperatorProfile(Clock& clock) : clock_(clock) {}

  TimeNs NowNs() const { return clock_.NowNs(); }
  void Clear() { totals_ = {}; }
  void Add(DecoderOperator op, DurationNs time_ns, const OperatorCost& cost) {
    Totals& t = totals_[static_cast<size_t>(op)];
    ++t.calls;
    t.time_ns += time_ns;
    t.cost.Add(cost);
  }
  const Totals& totals(DecoderOperator op) const { return totals_[static_cast<size_t>(op)]; }

 private:
  Clock& clock_;
  std::array<Totals, kDecoderOperators> totals_{};
};

}  // namespace tactus::compute
