// The linear operators over packed weights against the machine's ceilings: bytes, operations and the share of the
// larger of the two bounds. The ceilings are measured between the calls; both are the best of many short turns, which
// excludes other load on the machine.
//
//   packed_bench [THREADS] [NAME_PART] [TOKENS]      NAME_PART: only rows whose "format shape" contains it; TOKENS:
//   only that number of tokens
//
// Weights rotate over copies that together exceed the caches, like the layers of a model. A call takes at most about a
// millisecond: if that covers only a part of the matrix, the row states the number of rows used. One thread is measured
// in thread CPU time, several threads in wall-clock time. Operations are those executed: 16-bit inputs count twice,
// unless the set multiplies 16 bits as fast as 8.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ceiling.h"
#include "compute/kernels/ops.h"
#include "measure.h"

namespace tactus::bench {
namespace {

using compute::LinearOutput;
using compute::PackedMatrix;
using compute::PackedTokens;
using compute::Quantization;
using compute::Rounding;
using compute::ThreadPool;

constexpr int64_t kShapes[][2] = {{5632, 2048}, {2048, 5632}, {32000, 2048}};
constexpr int64_t kTokens[] = {1, 2, 4, 8, 16, 32, 64, 128, 512};
constexpr int64_t kColdBytes = int64_t{256} << 20;
constexpr double kCallSeconds = 1e-3, kRowSeconds = 0.25;

constexpr int kFill = 0x11;  // normal numbers in f16, bf16 and f32

struct Format {
  const char* name;
  bool (*form)(int64_t rows, int64_t cols, PackedMatrix* m);
  Rounding rounding;
};
template <compute::DType kDType>
bool FileForm(int64_t rows, int64_t cols, PackedMatrix* m) {
  return compute::PackedFormOf(kDType, rows, cols, m);
}
template <Quantization kKind>
bool LoadForm(int64_t rows, int64_t cols, PackedMatrix* m) {
  return compute::QuantizedFormOf(kKind, rows, cols, m);
}
constexpr Format kFormats[] = {{"bf16", FileForm<compute::DType::kBF16>, Rounding::kInt8},
                               {"int8", LoadForm<Quantization::kInt8>, Rounding::kInt8},
                               {"int8+mix", LoadForm<Quantization::kInt8>, Rounding::kMixed},
                               {"q8_0", FileForm<compute::DType::kQ8_0>, Rounding::kInt8},
                               {"q8_0+mix", FileForm<compute::DType::kQ8_0>, Rounding::kMixed},
                               {"int4", LoadForm<Quantization::kInt4>, Rounding::kInt8},
                               {"int4+mix", LoadForm<Quantization::kInt4>, Rounding::kMixed},
                               {"q4_0", FileForm<compute::DType::kQ4_0>, Rounding::kInt8},
                               {"q4_0+mix", FileForm<compute::DType::kQ4_0>, Rounding::kMixed},
                               {"q4_1", FileForm<compute::DType::kQ4_1>, Rounding::kInt8},
                               {"q4_1+mix", FileForm<compute::DType::kQ4_1>, Rounding::kMixed},
                               {"q4_k", FileForm<compute::DType::kQ4_K>, Rounding::kInt8},
                               {"q4_k+mix", FileForm<compute::DType::kQ4_K>, Rounding::kMixed},
                               {"q6_k", FileForm<compute::DType::kQ6_K>, Rounding::kInt8},
                               {"q6_k+mix", FileForm<compute::DType::kQ6_K>, Rounding::kMixed},
                               {"int8+16", LoadForm<Quantization::kInt8>, Rounding::kInt16},
                               {"q8_0+16", FileForm<compute::DType::kQ8_0>, Rounding::kInt16},
                               {"q4_0+16", FileForm<compute::DType::kQ4_0>, Rounding::kInt16},
                               {"f32", FileForm<compute::DType::kF32>, Rounding::kNone},
                               {"f16", FileForm<compute::DType::kF16>, Rounding::kNone},
                               {"bf16+32", FileForm<compute::DType::kBF16>, Rounding::kNone},
                               {"q4_1+32", FileForm<compute::DType::kQ4_1>, Rounding::kNone}};

class Bench {
 public:
  explicit Bench(int32_t threads)
      : pool_(threads, SystemClock()),
        ops_(*compute::SelectOps()),
        cpu_time_(threads == 1),
        cold_(kColdBytes, kFill),
        loops_(PortableLoops()) {
#if defined(__x86_64__)
    if (std::string(ops_.name) == "avx2") loops_ = Avx2Loops();
    if (std::string(ops_.name) == "avxvnni") loops_ = AvxVnniLoops();
    if (std::string(ops_.name) == "avx512") loops_ = Avx512Loops();
    if (std::string(ops_.name) == "amx") loops_ = AmxLoops();
#endif
    std::printf("%s, %d thread%s\n%-8s %-11s %6s %6s %8s %10s %9s %10s %7s\n", ops_.name, threads,
                threads > 1 ? "s" : "", "format", "shape", "rows", "tokens", "GB/s", "of", "GOP/s", "of", "share");
  }

  void Row(const Format& format, int64_t rows, int64_t cols, int64_t tokens) {
    const std::string shape = std::to_string(rows) + "x" + std::to_string(cols);
    PackedMatrix m;
    if (!format.form(rows, cols, &m)) return;
    const compute::TokenFormat token_format = compute::TokensFor(m, format.rounding);
    const int64_t multiplies = loops_.int8_takes_16 || !token_format.integer() ? cols : token_format.multiplies(cols);
    const double token_rows = static_cast<double>(tokens * multiplies) / static_cast<double>(cols);
    const bool nibbles = m.code == compute::PackedCode::kU4 && !loops_.int8_takes_16;
    // A slice that takes about kCallSeconds at estimated rates.
    const double panel_seconds = std::max(static_cast<double>(m.panel_bytes) / 25e9,
                                          token_rows * 128.0 * static_cast<double>(cols) /
                                              (token_format.integer()                               ? 0.8e12
                                               : token_format.values == compute::TokenValues::kBF16 ? 0.45e12
                                                                                                    : 0.15e12));
    const int64_t fit = std::max<int64_t>(8, static_cast<int64_t>(kCallSeconds / panel_seconds * pool_.threads()));
    m.rows = std::min(m.rows, fit * compute::kPanelRows);
    const int64_t copies = kColdBytes / m.bytes();

    Mapping token_memory(compute::PackedTokenBytes(tokens, cols), kFill), y(tokens * m.rows * 4, kFill);
    Mapping scratch(compute::WorkspaceBytes(tokens, std::max(cols, m.rows), 1, 64, pool_.threads()), kFill);
    const PackedTokens x = compute::PlaceTokens(token_memory.data, token_format, tokens, cols);
    const std::vector<float> ones(static_cast<size_t>(tokens * cols), 1.0f);
    ops_.pack(pool_, ones.data(), nullptr, 0.0f, x);

    const double bytes = static_cast<double>(m.bytes()),
                 ops = 128.0 * token_rows * static_cast<double>(cols) * static_cast<double>(m.panels());
    double least = 1e9, arithmetic = 0, read = 0;
    const double end = Now(false) + kRowSeconds;
    for (int64_t i = 0; i < 4 || Now(false) < end; ++i) {
      arithmetic = std::max(arithmetic, Arithmetic(token_format.values, nibbles));
      read = std::max(read, Read(cold_.data + (i * 7 + 3) % copies * m.bytes(), m));
      m.data = cold_.data + (i * 7 + 5) % copies * m.bytes();
      const LinearOutput out{&m, nullptr, reinterpret_cast<float*>(y.data), m.rows, false};
      const double start = Now(cpu_time_);
      ops_.linear_packed(pool_, x, {&out, 1}, {scratch.data, static_cast<int64_t>(scratch.bytes)});
      least = std::min(least, Now(cpu_time_) - start);
    }
    const double bound = std::max(ops / arithmetic, bytes / read);
    std::printf("%-8s %-11s %6ld %6ld %8.1f %10.1f %9.1f %10.1f %6.1f%% %s\n", format.name, shape.c_str(),
                static_cast<long>(m.rows), static_cast<long>(tokens), bytes / least * 1e-9, read * 1e-9,
                ops / least * 1e-9, arithmetic * 1e-9, 100 * bound / least,
                ops / arithmetic > bytes / read ? "arithmetic" : "reading");
    std::fflush(stdout);
  }

 private:
  double Arithmetic(compute::TokenValues values, bool nibbles) {
    const bool bf16 = loops_.bf16 != nullptr && values != compute::TokenValues::kF32;
    float (*loop)(int64_t) = bf16 ? loops_.bf16 : loops_.f32;
    int64_t per_round = bf16 ? loops_.bf16_flops_per_round : loops_.f32_flops_per_round;
    if (values == compute::TokenValues::kInt8 && loops_.int8 != nullptr) {
      const bool has_own = nibbles && loops_.int4 != nullptr;
      loop = has_own ? loops_.int4 : loops_.int8;
      per_round = has_own ? loops_.int4_ops_per_round : loops_.int8_ops_per_round;
    }
    constexpr int64_t kOps = 16 << 20;  // 17 to 250 us
    const int64_t rounds = kOps / per_round;
    const double start = Now(cpu_time_);
    pool_.ParallelFor(pool_.threads(), [&](int64_t, int32_t) { sink_ = loop(rounds); });
    return static_cast<double>(rounds * per_round * pool_.threads()) / (Now(cpu_time_) - start);
  }

  double Read(const std::byte* data, const PackedMatrix& m) {
    const double start = Now(cpu_time_);
    pool_.ParallelFor(m.panels(), [&](int64_t p, int32_t) {
      sink_ = loops_.read(reinterpret_cast<const float*>(data + p * m.panel_bytes), m.panel_bytes / 4);
    });
    return static_cast<double>(m.bytes()) / (Now(cpu_time_) - start);
  }

  ThreadPool pool_;
  const compute::Ops& ops_;
  const bool cpu_time_;
  const Mapping cold_;
  CeilingLoops loops_;
  volatile float sink_ = 0;
};

}  // namespace
}  // namespace tactus::bench

int main(int argc, char** argv) {
  using namespace tactus::bench;
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const std::string part = argc > 2 ? argv[2] : "";
  const int64_t only = argc > 3 ? std::atoi(argv[3]) : 0;
  Bench bench(threads < 1 ? 1 : threads);
  for (const Format& format : kFormats) {
    for (const auto& shape : kShapes) {
      const std::string name =
          std::string(format.name) + " " + std::to_string(shape[0]) + "x" + std::to_string(shape[1]);
      if (name.find(part) == std::string::npos) continue;
      for (const int64_t tokens : kTokens) {
        if (only == 0 || only == tokens) bench.Row(format, shape[0], shape[1], tokens);
      }
    }
  }
  return 0;
}
