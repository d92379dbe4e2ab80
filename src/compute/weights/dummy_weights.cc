#include "compute/weights/dummy_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "base/rng.h"
#include "compute/tensor/float16.h"
#include "compute/tensor/quantize.h"

namespace tactus::compute {
namespace {

constexpr float kDeviation = 0.02f;
constexpr int kSums = 4 * 255 + 1;
constexpr int64_t kQ8Block = 32, kQ8BlockBytes = 34;

uint64_t NameHash(const std::string& name) {  // FNV-1a
  uint64_t h = 0xcbf29ce484222325ULL;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return h;
}

// Calls put(index - begin, sum) with a sum of four random bytes, 0 to 1020, for every index in [begin, end).
template <class Put>
void ForEachSum(uint64_t seed, uint64_t stream, int64_t begin, int64_t end, Put put) {
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int64_t i = begin / 4 * 4; i < end; i += 4) {
    const auto block = static_cast<uint64_t>(i) / 4;
    const auto bits = Philox4x32(key, {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                       static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)});
    for (int64_t k = std::max<int64_t>(begin - i, 0); k < std::min<int64_t>(4, end - i); ++k) {
      const uint32_t pairs =
          (bits[static_cast<size_t>(k)] & 0x00ff00ffu) + ((bits[static_cast<size_t>(k)] >> 8) & 0x00ff00ffu);
      put(i + k - begin, (pairs & 0xffffu) + (pairs >> 16));
    }
  }
}

class DummySource final : public WeightSource {
 public:
  DummySource(const DummyWeights& dummy, bool rows_only)
      : seed_(dummy.seed), dtype_(dummy.dtype), rows_only_(rows_only), storage_(std::make_shared<WeightStorage>()) {
    const float unit = std::sqrt(4.0f * (256.0f * 256.0f - 1.0f) / 12.0f);  // deviation of the sum of four bytes
    for (int s = 0; s < kSums; ++s) {
      const auto at = static_cast<size_t>(s);
      f32_[at] = (static_cast<float>(s) - 510.0f) * (kDeviation / unit);
      half_[at] = dtype_ == DType::kF16 ? F32ToF16(f32_[at]) : F32ToBF16(f32_[at]);
    }
  }

  Result<MatrixView> Matrix(const TensorRequest& request) override {
    const std::string& name = request.id;
    const int64_t rows = request.tensor.rows, cols = request.tensor.cols;
    // A format whose blocks do not divide the row falls back to bf16, as in quantising tools.
    const DType dtype = cols % InfoOf(dtype_).block_elements == 0 ? dtype_ : DType::kBF16;
    const int64_t row_bytes = RowBytes(dtype, cols);
    std::byte* data = nullptr;
    if (!rows_only_) {
      data = storage_->Allocate(rows * row_bytes);
      if (data == nullptr) return NoMemory(name, rows * row_bytes);
      Fill(dtype, NameHash(name), 0, rows * cols, data);
    }
    Count(dtype, data == nullptr ? 0 : rows * row_bytes);
    return MatrixView{data, dtype, rows, cols, row_bytes};
  }

  Result<const float*> Vector(const TensorRequest& request) override {
    const std::string& name = request.id;
    const int64_t size = request.tensor.rows;
    auto* data = reinterpret_cast<float*>(storage_->Allocate(size * 4));
    if (data == nullptr) return NoMemory(name, size * 4);
    if (request.tensor.is_norm) {
      std::fill(data, data + size, 1.0f);
    } else {
      Fill(DType::kF32, NameHash(name), 0, size, reinterpret_cast<std::byte*>(data));
    }
    Count(DType::kF32, size * 4);
    return static_cast<const float*>(data);
  }

  Status Finish(ModelWeights* weights) override {
    weights->bytes = bytes_;
    weights->format = "dummy " + FormatText({counts_.begin(), counts_.end()});
    weights->storage = storage_;
    return Status();
  }

  const std::byte* Rows(const std::string& name, const MatrixView& m, int64_t first, int64_t count,
                        std::byte* scratch) override {
    Fill(m.dtype, NameHash(name), first * m.cols, (first + count) * m.cols, scratch);
    return scratch;
  }

 private:
  static Status NoMemory(const std::string& name, int64_t bytes) {
    return Status(StatusCode::kResourceExhausted,
                  "no memory for dummy tensor '" + name + "' (" + std::to_string(bytes) + " bytes)");
  }

  void Count(DType dtype, int64_t bytes) {
    ++counts_[dtype];
    bytes_ += bytes;
  }

  // Elements [begin, end) of a tensor; a block format's begin is a multiple of its block.
  void Fill(DType dtype, uint64_t stream, int64_t begin, int64_t end, std::byte* out) const {
    if (dtype == DType::kF32) {
      auto* to = reinterpret_cast<float*>(out);
      ForEachSum(seed_, stream, begin, end, [&](int64_t i, uint32_t sum) { to[i] = f32_[sum]; });
    } else if (dtype == DType::kQ8_0) {
      FillQ8(stream, begin, end, out);
    } else if (dtype == DType::kQ4_0 || dtype == DType::kQ4_1) {
      FillQ4(dtype, stream, begin, end, out);
    } else {  // bf16 or f16: the table holds the requested one; f16 never falls back
      auto* to = reinterpret_cast<uint16_t*>(out);
      ForEachSum(seed_, stream, begin, end, [&](int64_t i, uint32_t sum) { to[i] = half_[sum]; });
    }
  }

  void FillQ4(DType dtype, uint64_t stream, int64_t begin, int64_t end, std::byte* out) const {
    std::array<float, kQ8Block> block{};
    ForEachSum(seed_, stream, begin, end, [&](int64_t i, uint32_t sum) {
      block[static_cast<size_t>(i % kQ8Block)] = f32_[sum];
      if (i % kQ8Block == kQ8Block - 1)
        Quantize(dtype, block.data(), kQ8Block, out + i / kQ8Block * InfoOf(dtype).block_bytes);
    });
  }

  // Q8_0: per 32 values an f16 scale, the largest magnitude / 127, and 32 signed bytes.
  void FillQ8(uint64_t stream, int64_t begin, int64_t end, std::byte* out) const {
    std::array<int, kQ8Block> block{};
    ForEachSum(seed_, stream, begin, end, [&](int64_t i, uint32_t sum) {
      block[static_cast<size_t>(i % kQ8Block)] = static_cast<int>(sum) - 510;
      if (i % kQ8Block != kQ8Block - 1) return;
      int largest = 1;
      for (const int v : block) largest = std::max(largest, std::abs(v));
      std::byte* to = out + i / kQ8Block * kQ8BlockBytes;
      const uint16_t scale = F32ToF16(f32_[static_cast<size_t>(510 + largest)] / 127.0f);
      std::memcpy(to, &scale, sizeof(scale));
      const float inverse = 127.0f / static_cast<float>(largest);
      for (size_t k = 0; k < kQ8Block; ++k) {
        const auto q = static_cast<int8_t>(std::lround(static_cast<float>(block[k]) * inverse));
        to[sizeof(scale) + k] = static_cast<std::byte>(q);
      }
    });
  }

  uint64_t seed_;
  DType dtype_;
  bool rows_only_;
  std::shared_ptr<WeightStorage> storage_;
  std::array<float, kSums> f32_{};
  std::array<uint16_t, kSums> half_{};
  std::map<DType, int64_t> counts_;
  int64_t bytes_ = 0;
};

}  // namespace

Result<std::unique_ptr<WeightSource>> MakeDummySource(const DummyWeights& dummy, bool rows_only) {
  constexpr DType kPossible[] = {DType::kBF16, DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1};
  if (std::find(std::begin(kPossible), std::end(kPossible), dummy.dtype) == std::end(kPossible)) {
    return InvalidArgument(std::string("dummy weights cannot be made as ") + InfoOf(dummy.dtype).name +
                               "; possible are bf16, f32, f16, q8_0, q4_0 and q4_1",
                           "dtype");
  }
  return std::unique_ptr<WeightSource>(std::make_unique<DummySource>(dummy, rows_only));
}

}  // namespace tactus::compute
