// The operators over packed weights: ref against plain arithmetic in double, every kernel set against ref (bit for bit
// for integer codes), and the same bits in any batch and on any number of threads.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "compute/kernels/packed_testing.h"

namespace tactus::compute::packed_linear_test {
namespace {

using namespace testing;

std::string What(const Ops* ops, const Form& form, Rounding rounding) {
  return std::string(ops->name) + " " + form.name() + ", " + NameOf(rounding);
}

// The specification rounds only f32 sums over blocks: a few ulp of the sum of magnitudes.
TEST(PackedLinear, RefMultipliesThePackedValues) {
  ThreadPool pool(1, SystemClock());
  const int64_t tokens = 3, rows = 70;
  std::vector<Form> forms = AllForms();
  for (const compute::DType dtype : kAllDTypes) {
    if (dtype > compute::DType::kQ2_K) forms.push_back({dtype});
  }
  for (const Form& form : forms) {
    for (const Rounding rounding : RoundingsOf(form)) {
      const int64_t cols = form.width(320);
      const OwnedMatrix w = RandomMatrix(form.dtype, rows, cols, 51);
      const OwnedPacked packed(w.view, form.at(rows, cols));
      const std::vector<float> x = RandomTokens(tokens, cols, 52), bias = RandomFloats(rows, 53);
      OwnedTokens in(TokensFor(packed.form, rounding), tokens, cols);
      Pack(*SelectOps("ref"), pool, x, in.view);
      const std::vector<float> y =
          RunPacked(*SelectOps("ref"), pool, x.data(), tokens, packed.form, rounding, bias.data());
      std::vector<float> row(static_cast<size_t>(cols));
      for (int64_t n = 0; n < rows; ++n) {
        UnpackRow(packed.form, n, row.data());
        for (int64_t t = 0; t < tokens; ++t) {
          double want = bias[n], magnitude = std::fabs(bias[n]);
          for (int64_t c = 0; c < cols; ++c) {
            const double product = static_cast<double>(TokenValue(in.view, t, c)) * row[c];
            want += product;
            magnitude += std::fabs(product);
          }
          ASSERT_NEAR(y[t * rows + n], want, 16 * 0x1p-24 * magnitude) << What(SelectOps("ref"), form, rounding);
        }
      }
    }
  }
}

TEST(PackedLinear, EverySetAgreesWithRef) {
  ThreadPool pool(2, SystemClock());
  const int64_t tokens = 37, rows = 200;
  for (const Form& form : AllForms()) {
    for (const Rounding rounding : RoundingsOf(form)) {
      for (int64_t about : {32, 576}) {
        const int64_t cols = form.width(about);
        const OwnedMatrix w = RandomMatrix(form.dtype, rows, cols, 61);
        const OwnedPacked packed(w.view, form.at(rows, cols));
        const std::vector<float> x = RandomTokens(tokens, cols, 62), bias = RandomFloats(rows, 63);
        const std::vector<float> want =
            RunPacked(*SelectOps("ref"), pool, x.data(), tokens, packed.form, rounding, bias.data());
        for (const Ops* ops : OwnSets()) {
          const std::vector<float> got = RunPacked(*ops, pool, x.data(), tokens, packed.form, rounding, bias.data());
          for (int64_t i = 0; i < tokens * rows; ++i) {
            if (IsExact(form, rounding)) {
              ASSERT_TRUE(SameBits(&got[i], &want[i], 1))
                  << What(ops, form, rounding) << " cols " << cols << " token " << i / rows << " row " << i % rows
                  << ": " << got[i] << " for " << want[i];
            } else {
              std::vector<float> row(static_cast<size_t>(cols));
              UnpackRow(packed.form, i % rows, row.data());
              double magnitude = std::fabs(bias[i % rows]);
              for (int64_t c = 0; c < cols; ++c)
                magnitude += std::fabs(static_cast<double>(x[i / rows * cols + c]) * row[c]);
              ASSERT_NEAR(got[i], want[i], 4 * std::sqrt(static_cast<double>(cols) + 4) * 0x1p-24 * magnitude)
                  << What(ops, form, rounding);
            }
          }
        }
      }
    }
  }
}

// Codes and tokens at the ends of their ranges: instructions that add neighbours in 16 bits would saturate here.
TEST(PackedLinear, ExtremeCodesDoNotSaturate) {
  ThreadPool pool(1, SystemClock());
  const int64_t rows = 66, cols = 256, tokens = 4;
  for (compute::DType dtype : {compute::DType::kQ8_0, compute::DType::kQ5_1, compute::DType::kQ4_0,
                               compute::DType::kQ6_K, compute::DType::kQ5_K}) {
    OwnedMatrix w = RandomMatrix(dtype, rows, cols, 64);
    auto* bytes = w.bytes.data() + 1;
    const int64_t block = compute::InfoOf(dtype).block_bytes;
    const uint16_t one = compute::F32ToF16(1.0f);
    for (int64_t i = 0; i < rows * w.view.row_bytes; ++i) bytes[i] = std::byte{0xff};
    if (dtype == compute::DType::kQ8_0) {  // rows of -128, rows of 127, and rows that alternate
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < w.view.row_bytes; ++i) {
          bytes[r * w.view.row_bytes + i] =
              std::byte{r % 3 == 0 || (r % 3 == 1 && i % 2 == 0) ? uint8_t{0x80} : uint8_t{0x7f}};
        }
      }
    }
    for (int64_t b = 0; b < rows * w.view.row_bytes; b += block) {
      std::memcpy(bytes + b + (dtype == compute::DType::kQ6_K ? block - 2 : 0), &one, sizeof one);
      if (dtype == compute::DType::kQ5_1 || dtype == compute::DType::kQ5_K)
        std::memcpy(bytes + b + 2, &one, sizeof one);
    }
    const Form form = {dtype};
    const OwnedPacked packed(w.view, form.at(rows, cols));
    std::vector<float> x(tokens * cols);
    for (int64_t t = 0; t < tokens; ++t) {  // all largest, all smallest, alternating, and -128 in every low plane
      for (int64_t c = 0; c < cols; ++c) {
        const float signs[] = {1, -1, c % 2 == 0 ? 1.0f : -1.0f, c % 32 == 0 ? 1.0f : 128.0f / 32512};
        x[t * cols + c] = signs[t];
      }
    }
    for (const Rounding rounding : kIntegerRoundings) {
      const std::vector<float> want = RunPacked(*SelectOps("ref"), pool, x.data(), tokens, packed.form, rounding);
      for (const Ops* ops : OwnSets()) {
        const std::vector<float> got = RunPacked(*ops, pool, x.data(), tokens, packed.form, rounding);
        EXPECT_TRUE(SameBits(got.data(), want.data(), tokens * rows)) << What(ops, form, rounding);
      }
    }
  }
}

TEST(PackedLinear, ATokenHasTheSameBitsInEveryBatch) {
  constexpr int64_t kRows = 70;
  const int64_t most = MostTokens(130);
  ThreadPool one(1, SystemClock());
  for (const Form& form : AllForms()) {
    const int64_t cols = form.width(256);
    const OwnedMatrix w = RandomMatrix(form.dtype, kRows, cols, 71);
    const OwnedPacked packed(w.view, form.at(kRows, cols));
    const std::vector<float> x = RandomTokens(most, cols, 72);
    for (const Rounding rounding : RoundingsOf(form)) {
      for (const Ops* ops : OwnSets()) {
        std::vector<float> alone;
        for (int64_t t = 0; t < most; ++t) {
          const std::vector<float> y = RunPacked(*ops, one, x.data() + t * cols, 1, packed.form, rounding);
          alone.insert(alone.end(), y.begin(), y.end());
        }
        for (int64_t tokens = 2; tokens <= most; ++tokens) {
          const std::vector<float> y = RunPacked(*ops, one, x.data(), tokens, packed.form, rounding);
          ASSERT_TRUE(SameBits(y.data(), alone.data(), tokens * kRows)) << What(ops, form, rounding) << " M " << tokens;
        }
      }
    }
  }
}

TEST(PackedLinear, ThreadsChangeNoBit) {
  constexpr int64_t kRows = 600;
  const int64_t most = MostTokens(110);
  ThreadPool one(1, SystemClock()), two(2, SystemClock()), three(3, SystemClock()), four(4, SystemClock());
  for (const Form& form : AllForms()) {
    const int64_t cols = form.width(256);
    const OwnedMatrix w = RandomMatrix(form.dtype, kRows, cols, 81);
    const OwnedPacked packed(w.view, form.at(kRows, cols));
    const std::vector<float> x = RandomTokens(most, cols, 82);
    for (const Rounding rounding : RoundingsOf(form)) {
      for (const Ops* ops : OwnSets()) {
        for (int64_t tokens : {int64_t{1}, int64_t{5}, most}) {
          const std::vector<float> want = RunPacked(*ops, one, x.data(), tokens, packed.form, rounding);
          for (ThreadPool* pool : {&two, &three, &four}) {
            const std::vector<float> got = RunPacked(*ops, *pool, x.data(), tokens, packed.form, rounding);
            ASSERT_TRUE(SameBits(got.data(), want.data(), tokens * kRows))
                << What(ops, form, rounding) << " threads " << pool->threads();
          }
        }
      }
    }
  }
}

// Several matrices at once, into strided rows, some added to existing values: each as if alone, and no other memory is
// changed.
TEST(PackedLinear, SeveralOutputsChangeOnlyTheirOwnRows) {
  ThreadPool pool(2, SystemClock());
  const int64_t tokens = 19;
  for (const Form& form : AllForms()) {
    const int64_t cols = form.width(256);
    const OwnedMatrix wa = RandomMatrix(form.dtype, 100, cols, 91), wb = RandomMatrix(form.dtype, 3, cols, 92);
    const OwnedPacked a(wa.view, form.at(100, cols)), b(wb.view, form.at(3, cols));
    const std::vector<float> x = RandomTokens(tokens, cols, 93), bias = RandomFloats(100, 94),
                             before = RandomFloats(tokens * 110, 95);
    for (const Ops* ops : RunnableOps()) {
      for (const Rounding rounding : RoundingsOf(form)) {
        const std::vector<float> plain = RunPacked(*ops, pool, x.data(), tokens, a.form, rounding);
        const std::vector<float> small = RunPacked(*ops, pool, x.data(), tokens, b.form, rounding);
        OwnedTokens in(TokensFor(a.form, rounding), tokens, cols);
        OwnedWorkspace scratch(tokens, cols, 1, 8, pool.threads());
        Pack(*ops, pool, x, in.view);
        std::vector<float> y = before, z(tokens * 3, -1.0f);
        const std::array<LinearOutput, 2> outputs = {LinearOutput{&a.form, bias.data(), y.data(), 110, true},
                                                     LinearOutput{&b.form, nullptr, z.data(), 3, false}};
        ops->linear_packed(pool, in.view, outputs, scratch.view());
        EXPECT_TRUE(SameBits(z.data(), small.data(), tokens * 3)) << What(ops, form, rounding);
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t n = 0; n < 110; ++n) {
            const float old = before[t * 110 + n];
            ASSERT_EQ(y[t * 110 + n], n < 100 ? old + (plain[t * 100 + n] + bias[n]) : old)
                << What(ops, form, rounding) << " " << t << " " << n;
          }
        }
      }
    }
  }
}

// Equality across machines: these hashes (FNV-1a of the result's bytes) hold for every set on every architecture.
// Inputs are made from integers, so that no math library affects them.
TEST(PackedLinear, BitsAreEqualOnEveryMachine) {
  struct Golden {
    Quantization quantization;
    Rounding rounding;
    uint64_t hash;
  };
  constexpr Golden kGolden[] = {
      {Quantization::kQ8_0, Rounding::kInt8, 0x5e80849af536740e},
      {Quantization::kQ8_0, Rounding::kMixed, 0x57756fb3af90c58c},
      {Quantization::kQ8_0, Rounding::kMixedFine, 0xd89c3cd486da7d00},
      {Quantization::kQ8_0, Rounding::kInt16, 0x771e230820b525b7},
      {Quantization::kInt8, Rounding::kInt8, 0x3bbcd51cf05f30d8},
      {Quantization::kInt8, Rounding::kMixed, 0x5f2a92627011288f},
      {Quantization::kInt8, Rounding::kMixedFine, 0x4931207ee3ba480f},
      {Quantization::kInt8, Rounding::kInt16, 0x59a48cbcb3acc9ad},
      {Quantization::kInt4, Rounding::kInt8, 0x7cd78b8c53882200},
      {Quantization::kInt4, Rounding::kMixed, 0x96ba25d9999dd1da},
      {Quantization::kInt4, Rounding::kMixedFine, 0x4bb8686b1cdc40ee},
      {Quantization::kInt4, Rounding::kInt16, 0x8915f4cce206a8c8},
  };
  ThreadPool pool(2, SystemClock());
  const int64_t rows = 70, cols = 330, tokens = 9;
  Rng rng(151);
  const auto integers = [&rng](int64_t n) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& v : out) v = static_cast<float>(static_cast<int32_t>(rng.Next64() % 4001) - 2000) / 1024.0f;
    return out;
  };
  const std::vector<float> w = integers(rows * cols);
  std::vector<float> x = integers(tokens * cols);
  for (size_t i = 0; i < x.size(); i += 50) x[i] *= 64;  // makes scales differ
  const compute::MatrixView view = {w.data(), compute::DType::kF32, rows, cols, cols * 4};
  for (const Golden& golden : kGolden) {
    const Form form = {compute::DType::kF32, golden.quantization};
    const OwnedPacked packed(view, form.at(rows, cols));
    for (const Ops* ops : RunnableOps()) {
      const std::vector<float> y = RunPacked(*ops, pool, x.data(), tokens, packed.form, golden.rounding);
      uint64_t hash = 0xcbf29ce484222325u;
      for (const float v : y) {
        for (int shift = 0; shift < 32; shift += 8)
          hash = (hash ^ ((compute::BitsOf(v) >> shift) & 0xff)) * 0x100000001b3u;
      }
      EXPECT_EQ(hash, golden.hash) << What(ops, form, golden.rounding) << std::hex << " 0x" << hash;
    }
  }
}

// Tasks of many tokens: several per panel, with a rest, in several passes; and narrow rows, whose padding is the
// largest part of the workspace.
TEST(PackedLinear, ManyTokensHaveRefsBits) {
  ThreadPool pool(1, SystemClock());
  const Form forms[] = {
      {DType::kQ8_0}, {DType::kQ4_1}, {DType::kF32, Quantization::kInt8}, {DType::kF32, Quantization::kInt4}};
  constexpr int64_t kSizes[][2] = {{32, 1300}, {192, 523}, {2048, 390}};  // columns, tokens
  for (const auto& [cols, about] : kSizes) {
    const int64_t rows = cols > 1000 ? 40 : 150, tokens = MostTokens(about);
    for (const Form& form : forms) {
      const OwnedMatrix w = RandomMatrix(form.dtype, rows, cols, 171);
      const OwnedPacked packed(w.view, form.at(rows, cols));
      const std::vector<float> x = RandomTokens(tokens, cols, 172);
      for (const Rounding rounding : {Rounding::kMixed, Rounding::kInt16}) {
        const std::vector<float> want = RunPacked(*SelectOps("ref"), pool, x.data(), tokens, packed.form, rounding);
        for (const Ops* ops : OwnSets()) {
          const std::vector<float> got = RunPacked(*ops, pool, x.data(), tokens, packed.form, rounding);
          ASSERT_TRUE(SameBits(got.data(), want.data(), tokens * rows))
              << ops->name << " " << form.name() << " " << NameOf(rounding) << " " << tokens << " x " << cols;
        }
      }
    }
  }
}

TEST(PackedLinear, NoTokensIsNoWork) {
  ThreadPool pool(1, SystemClock());
  const OwnedMatrix w = RandomMatrix(compute::DType::kQ4_0, 64, 64, 96);
  const OwnedPacked packed(w.view, Form{compute::DType::kQ4_0}.at(64, 64));
  for (const Ops* ops : RunnableOps())
    EXPECT_TRUE(RunPacked(*ops, pool, nullptr, 0, packed.form, Rounding::kInt8).empty());
}

// ---- gate and up ----

struct Gated {
  std::vector<float> values;  // [tokens, rows], of the packed result
};

Gated RunGated(const Ops& ops, ThreadPool& pool, const float* x, int64_t tokens, const PackedMatrix& gate,
               const PackedMatrix& up, const std::vector<float>& bias, Rounding rounding,
               const TokenFormat& out_format) {
  OwnedTokens in(TokensFor(gate, rounding), tokens, gate.cols), out(out_format, tokens, gate.rows);
  OwnedWorkspace scratch(tokens, gate.cols, 1, 8, pool.threads());
  std::vector<float> inner(static_cast<size_t>(tokens * gate.rows));
  ops.pack(pool, x, nullptr, 0.0f, in.view);
  ops.gated_packed(pool, in.view, gate, bias.data(), up, nullptr, inner.data(), out.view, scratch.view());
  Gated result;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < gate.rows; ++c) result.values.push_back(TokenValue(out.view, t, c));
  }
  return result;
}

TEST(PackedGated, IsSiluOfGateTimesUpForEverySet) {
  ThreadPool pool(2, SystemClock());
  const int64_t tokens = 21, rows = 150;
  for (const Form& form :
       {Form{compute::DType::kBF16}, Form{compute::DType::kF16}, Form{compute::DType::kF32},
        Form{compute::DType::kQ4_1}, Form{compute::DType::kQ8_0}, Form{compute::DType::kF32, Quantization::kInt8}}) {
    const int64_t cols = form.width(256);
    const OwnedMatrix wg = RandomMatrix(form.dtype, rows, cols, 101), wu = RandomMatrix(form.dtype, rows, cols, 102);
    const OwnedPacked gate(wg.view, form.at(rows, cols)), up(wu.view, form.at(rows, cols));
    const std::vector<float> x = RandomFloats(tokens * cols, 103), bias = RandomFloats(rows, 104);
    for (const Rounding rounding : RoundingsOf(form)) {
      for (const TokenFormat& out_format :
           {TokenFormat{}, TokenFormat{TokenValues::kF32}, TokenFormat{TokenValues::kInt8, 128},
            TokenFormat{TokenValues::kInt8, 32, 0, 2}, TokenFormat{TokenValues::kInt8, 64, 32},
            TokenFormat{TokenValues::kInt8, 32, 16}}) {
        const Gated want =
            RunGated(*SelectOps("ref"), pool, x.data(), tokens, gate.form, up.form, bias, rounding, out_format);
        for (const Ops* ops : RunnableOps()) {
          const std::vector<float> g = RunPacked(*ops, pool, x.data(), tokens, gate.form, rounding, bias.data());
          const std::vector<float> u = RunPacked(*ops, pool, x.data(), tokens, up.form, rounding);
          const Gated got = RunGated(*ops, pool, x.data(), tokens, gate.form, up.form, bias, rounding, out_format);
          for (int64_t t = 0; t < tokens; ++t) {
            float largest = 0;
            for (int64_t n = 0; n < rows; ++n) largest = std::fmax(largest, std::fabs(want.values[t * rows + n]));
            const double step = out_format.values == TokenValues::kF32 ? largest * 0x1p-22
                                : !out_format.integer()                ? largest * 0x1p-7
                                                        : largest / (out_format.parts == 2 ? 127.0 * 254 : 127.0);
            for (int64_t n = 0; n < rows; ++n) {
              const double gv = g[t * rows + n], value = gv / (1 + std::exp(-gv)) * u[t * rows + n];
              ASSERT_NEAR(got.values[t * rows + n], value, 0.51 * step + 2e-6 * std::fabs(value))
                  << What(ops, form, rounding) << " " << n;
              ASSERT_NEAR(got.values[t * rows + n], want.values[t * rows + n], 1.01 * step + 1e-5 * std::fabs(value))
                  << What(ops, form, rounding);
            }
          }
        }
      }
    }
  }
}

TEST(PackedGated, ATokenHasTheSameBitsInEveryBatchAndOnAnyThreads) {
  constexpr int64_t kRows = 200;
  const int64_t most = MostTokens(130);
  ThreadPool one(1, SystemClock()), three(3, SystemClock());
  for (const Form& form : {Form{compute::DType::kBF16}, Form{compute::DType::kF16}, Form{compute::DType::kF32},
                           Form{compute::DType::kQ4_0}, Form{compute::DType::kF32, Quantization::kInt8}}) {
    const int64_t cols = form.width(256);
    const OwnedMatrix wg = RandomMatrix(form.dtype, kRows, cols, 111), wu = RandomMatrix(form.dtype, kRows, cols, 112);
    const OwnedPacked gate(wg.view, form.at(kRows, cols)), up(wu.view, form.at(kRows, cols));
    const std::vector<float> x = RandomFloats(most * cols, 113), bias = RandomFloats(kRows, 114);
    const Rounding rounding = form.integer() ? Rounding::kMixed : Rounding::kInt8;
    const TokenFormat out_format = TokensFor(gate.form, rounding);
    for (const Ops* ops : OwnSets()) {
      const auto run = [&](ThreadPool& pool, int64_t first, int64_t tokens) {
        return RunGated(*ops, pool, x.data() + first * cols, tokens, gate.form, up.form, bias, rounding, out_format)
            .values;
      };
      std::vector<float> alone;
      for (int64_t t = 0; t < most; ++t) {
        const std::vector<float> y = run(one, t, 1);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (int64_t tokens : {2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 96, 97, 128, 129, 130}) {
        if (tokens > most) break;
        for (ThreadPool* pool : {&one, &three}) {
          const std::vector<float> y = run(*pool, 0, tokens);
          ASSERT_TRUE(SameBits(y.data(), alone.data(), tokens * kRows))
              << ops->name << " " << form.name() << " M " << tokens;
        }
      }
    }
  }
}

TEST(PackedEmbed, RowsAreTheTables) {
  ThreadPool pool(2, SystemClock());
  const int32_t ids[] = {0, 129, 64, 63, 129};
  for (const Form& form : AllForms()) {
    const int64_t rows = 130, cols = form.width(576);
    const OwnedMatrix w = RandomMatrix(form.dtype, rows, cols, 121);
    const OwnedPacked packed(w.view, form.at(rows, cols));
    for (const Ops* ops : RunnableOps()) {
      std::vector<float> got(5 * cols, -1.0f), want(cols);
      ops->embed_packed(pool, ids, 5, packed.form, got.data());
      for (int64_t t = 0; t < 5; ++t) {
        UnpackRow(packed.form, ids[t], want.data());
        ASSERT_TRUE(SameBits(got.data() + t * cols, want.data(), cols)) << ops->name << " " << form.name();
      }
    }
  }
}

}  // namespace
}  // namespace tactus::compute::packed_linear_test
