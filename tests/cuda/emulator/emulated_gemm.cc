// compute/cuda/gemm.h on the CPU: plain sums in f32 in ascending order of k, the same for every number of tokens.
// Without batch invariance products of many tokens are the sum of two halves of k, so their rounding differs.
#include "compute/cuda/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "device_state.h"
#include "memory.h"
#include "values.h"

namespace tactus::compute::cuda {
namespace emulator {
namespace {

constexpr int64_t kLanes = 16;       // rows of w whose sums are made together
constexpr int64_t kManyTokens = 16;  // more than these are multiplied in halves, without batch invariance

// n values of a factor.
void ToFloats(const char* from, const GemmCall& call, int64_t n, float* to) {
  if (call.x_scales != nullptr) {
    for (int64_t i = 0; i < n; ++i) to[i] = OfE4m3(static_cast<uint8_t>(from[i]));
    return;
  }
  if (call.type == Real::kF32) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, sizeof bits);
    to[i] = call.type == Real::kBF16 ? ToFloat(bf16{bits}) : ToFloat(f16{bits});
  }
}

// A library's operand: in bounds, and written.
const char* Operand(const void* address, int64_t bytes, const char* what) {
  const auto range = FindRange(address, bytes, what);
  if (!range) return nullptr;
  if (!range->shadow().AllWritten(range->offset, bytes)) {
    ReportCall(what, fmt::format("never-written memory in {} bytes from byte {} of {}", bytes, range->offset,
                                 range->memory->name));
  }
  CheckOrder(*range, false, what);
  return range->data();
}

class Product {
 public:
  // `middle`: where the second sum begins; the end of k: one sum.
  Product(const GemmCall& call, int64_t middle, std::shared_ptr<Shadow> scratch)
      : call_(call), middle_(middle), scratch_(std::move(scratch)) {}

  void Run() {
    const int64_t y_width = SizeOf(call_.y_type);
    const char* x = Operand(call_.x, call_.tokens * call_.cols * width_, "Multiply: x");
    const char* w = Operand(call_.w, call_.rows * call_.cols * width_, "Multiply: w");
    if (call_.x_scales != nullptr) {
      x_scales_ = Operand(call_.x_scales, call_.tokens * 4, "Multiply: x_scales");
      w_scales_ = Operand(call_.w_scales, (call_.one_w_scale ? 1 : call_.rows) * 4, "Multiply: w_scales");
      if (x_scales_ == nullptr || w_scales_ == nullptr) return;
    }
    const char* bias = call_.bias == nullptr ? nullptr : Operand(call_.bias, call_.rows * 4, "Multiply: bias");
    const int64_t y_bytes = ((call_.tokens - 1) * call_.y_stride + call_.rows) * y_width;
    const auto y = FindRange(call_.y, y_bytes, "Multiply: y");
    if (x == nullptr || w == nullptr || !y || (call_.bias != nullptr && bias == nullptr)) return;
    if (call_.adds) {
      for (int64_t t = 0; t < call_.tokens; ++t) {
        Operand(static_cast<char*>(call_.y) + t * call_.y_stride * y_width, call_.rows * y_width,
                "Multiply: y, added to");
      }
    }
    x_.resize(static_cast<size_t>(call_.tokens * call_.cols));
    ToFloats(x, call_, call_.tokens * call_.cols, x_.data());
    panel_.resize(static_cast<size_t>(call_.cols * kLanes));
    for (int64_t first = 0; first < call_.rows; first += kLanes) {
      MakePanel(w, first);
      for (int64_t t = 0; t < call_.tokens; ++t) Rows(t, first, bias, y->data() + t * call_.y_stride * y_width);
    }
    Note(*y, y_width);
  }

 private:
  // What the product has accessed, but for w: it is large, and constant while products run.
  void Note(const Range& y, int64_t y_width) {
    const Stamp stamp = MakeStamp(NewSerials(1), 0, 0);
    const auto x = FindRange(call_.x, call_.tokens * call_.cols * width_, "Multiply: x");
    x->shadow().MarkRead(x->offset, x->bytes, stamp);
    for (int64_t t = 0; t < call_.tokens; ++t) {
      WriteRange({y.memory, y.offset + t * call_.y_stride * y_width, call_.rows * y_width}, stamp, "Multiply: y");
    }
    if (const char* const other = scratch_->FindUnordered(0, 4, true)) {
      ReportCall("race between streams", fmt::format("products share scratch, nothing orders one with {}", other));
    }
    scratch_->MarkWritten(0, 4, stamp);
  }
  // panel_[k][lane] of rows [first, first + kLanes) of w, 0 beyond the last.
  void MakePanel(const char* w, int64_t first) {
    std::fill(panel_.begin(), panel_.end(), 0.0f);
    row_.resize(static_cast<size_t>(call_.cols));
    const int64_t lanes = std::min(kLanes, call_.rows - first);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      ToFloats(w + (first + lane) * call_.cols * width_, call_, call_.cols, row_.data());
      for (int64_t k = 0; k < call_.cols; ++k)
        panel_[static_cast<size_t>(k * kLanes + lane)] = row_[static_cast<size_t>(k)];
    }
  }
  void Rows(int64_t t, int64_t first, const char* bias, char* y) const {
    float sums[kLanes] = {}, behind[kLanes] = {};
    const float* x = x_.data() + t * call_.cols;
    AddPart(x, 0, middle_, sums);
    if (middle_ < call_.cols) {
      AddPart(x, middle_, call_.cols, behind);
      for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += behind[lane];
    }
    const int64_t lanes = std::min(kLanes, call_.rows - first);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      float sum = sums[lane];
      const int64_t row = first + lane;
      if (x_scales_ != nullptr) sum *= Take(x_scales_ + 4 * t) * Take(w_scales_ + (call_.one_w_scale ? 0 : 4 * row));
      if (bias != nullptr) sum += Take(bias + 4 * row);
      if (call_.adds) sum += Take(y + 4 * row);
      Put(y, row, sum);
    }
  }
  void AddPart(const float* x, int64_t k, int64_t end, float* sums) const {
    for (; k < end; ++k) {
      const float* w = panel_.data() + k * kLanes;
      for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += x[k] * w[lane];
    }
  }
  static float Take(const char* at) {
    float v;
    std::memcpy(&v, at, sizeof v);
    return v;
  }
  void Put(char* y, int64_t row, float v) const {
    if (call_.y_type == Real::kF32) {
      std::memcpy(y + 4 * row, &v, sizeof v);
    } else {
      const uint16_t bits = call_.y_type == Real::kBF16 ? Bf16Of(v) : F16Of(v);
      std::memcpy(y + 2 * row, &bits, sizeof bits);
    }
  }

  GemmCall call_;
  int64_t middle_;
  std::shared_ptr<Shadow> scratch_;
  int64_t width_ = call_.x_scales != nullptr ? 1 : SizeOf(call_.type);
  const char *x_scales_ = nullptr, *w_scales_ = nullptr;
  std::vector<float> x_, panel_, row_;
};

class EmulatedGemm : public Gemm {
 public:
  explicit EmulatedGemm(bool batch_invariant) : batch_invariant_(batch_invariant) {}
  Status Prepare(int64_t rows, int64_t cols, int64_t max_tokens, Real type, Real y_type) override {
    prepared_.push_back({rows, cols, max_tokens, false, type, y_type});
    return Status();
  }
  Status PrepareFp8(int64_t rows, int64_t cols, int64_t max_tokens) override {
    if (rows % 16 != 0 || cols % 16 != 0) return Unimplemented("sides of a product of FP8 values are multiples of 16");
    const int32_t capability = Device::The().shape.capability;
    if (capability < kFp8Capability) {
      return Unimplemented(fmt::format("a device of compute capability {} has no products of FP8 values", capability));
    }
    prepared_.push_back({.rows = rows, .cols = cols, .max_tokens = max_tokens, .fp8 = true});
    return Status();
  }
  void Multiply(Stream& s, const GemmCall& call) override {
    if (call.tokens <= 0) return;
    Device& device = Device::The();
    const std::lock_guard lock(device.mutex);
    ++device.counts.products;
    const bool known = std::any_of(prepared_.begin(), prepared_.end(), [&](const Shape& p) {
      return p.rows == call.rows && p.cols == call.cols && call.tokens <= p.max_tokens &&
             p.fp8 == (call.x_scales != nullptr) && (p.fp8 || (p.type == call.type && p.y_type == call.y_type));
    });
    if (!known) {
      ReportCall("Multiply",
                 fmt::format("rows {}, cols {}, tokens {} were not prepared", call.rows, call.cols, call.tokens));
    }
    if (call.adds && call.y_type != Real::kF32) ReportCall("Multiply", "adds to values that are not f32");
    if (call.y_stride < call.rows && call.tokens > 1) ReportCall("Multiply", "the rows of y overlap");
    const int64_t middle = batch_invariant_ || call.tokens <= kManyTokens ? call.cols : call.cols / 2;
    QueueOf(s).Add({.run = [call, middle, scratch = scratch_] { Product(call, middle, scratch).Run(); },
                    .name = "Multiply",
                    .addresses = {call.x, call.w, call.bias, call.y, call.x_scales, call.w_scales}});
  }

 private:
  struct Shape {
    int64_t rows = 0, cols = 0, max_tokens = 0;
    bool fp8 = false;
    Real type = Real::kBF16, y_type = Real::kBF16;  // of those without FP8
  };
  const bool batch_invariant_;
  const std::shared_ptr<Shadow> scratch_ = std::make_shared<Shadow>(Memory::kGlobal, 4);
  std::vector<Shape> prepared_;
};

}  // namespace
}  // namespace emulator

Result<std::unique_ptr<Gemm>> Gemm::Create(bool batch_invariant) {
  return std::unique_ptr<Gemm>(std::make_unique<emulator::EmulatedGemm>(batch_invariant));
}

}  // namespace tactus::compute::cuda
