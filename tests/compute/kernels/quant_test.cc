// GGUF's formats against gguf.quants (tools/make_quant_golden.py), and every kernel set's dequantisation against ours:
// equal bits, at any address.
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <span>
#include <sstream>

#include "compute/kernels/kernel_testing.h"
#include "compute/tensor/dequantize.h"
#include "support/source_path.h"

namespace tactus::compute {
namespace {

constexpr const char* kGoldenFile = "tests/compute/kernels/data/quant_golden.txt";

std::vector<std::byte> FromHex(const std::string& hex) {
  std::vector<std::byte> out(hex.size() / 2);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return out;
}

std::vector<float> AsFloats(const std::vector<std::byte>& bytes) {
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

struct Case {
  std::string what, name;
  std::vector<std::byte> from, to;
};

std::vector<Case> Golden() {
  std::vector<Case> cases;
  std::ifstream file(test::SourcePath(kGoldenFile));
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string what, name, from, to;
    fields >> what >> name >> from >> to;
    if (what == "hashes") continue;
    cases.push_back({what, name, FromHex(from), FromHex(to)});
  }
  return cases;
}

std::optional<DType> Named(const std::string& name) {
  for (int k = 0; k <= static_cast<int>(DType::kInt8); ++k) {
    if (name == InfoOf(static_cast<DType>(k)).name) return static_cast<DType>(k);
  }
  return std::nullopt;
}

TEST(Quant, AgreesWithGguf) {
  int dequantized = 0, quantized = 0;
  for (const Case& c : Golden()) {
    const auto dtype = Named(c.name);
    ASSERT_TRUE(dtype.has_value()) << c.name;
    if (c.what == "dequantize") {
      const std::vector<float> want = AsFloats(c.to);
      std::vector<float> got(want.size());
      ASSERT_EQ(RowBytes(*dtype, static_cast<int64_t>(want.size())), static_cast<int64_t>(c.from.size())) << c.name;
      Dequantize(*dtype, c.from.data(), static_cast<int64_t>(want.size()), got.data());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(BitsOf(got[i]), BitsOf(want[i])) << c.name << " value " << i << ": " << got[i] << " for " << want[i];
      }
      ++dequantized;
    } else {
      const std::vector<float> from = AsFloats(c.from);
      std::vector<std::byte> got(c.to.size());
      Quantize(*dtype, from.data(), static_cast<int64_t>(from.size()), got.data());
      EXPECT_EQ(got, c.to) << c.name;
      ++quantized;
    }
  }
  EXPECT_EQ(dequantized, 22 + 16);
  EXPECT_EQ(quantized, 20);
}

// splitmix64's numbers, little endian.
std::vector<std::byte> RandomBytes(uint64_t state, size_t count) {
  std::vector<std::byte> out((count + 7) / 8 * 8);
  for (size_t i = 0; i < out.size(); i += 8) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    std::memcpy(out.data() + i, &z, sizeof z);
  }
  out.resize(count);
  return out;
}

uint64_t Fnv1a(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte b : std::as_bytes(std::span(values))) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
  return hash;
}

// Thousands of blocks of random bytes, so that every entry of a codebook occurs.
TEST(Quant, HashesAgreeWithGguf) {
  constexpr int kBlocks = 64;
  std::ifstream file(test::SourcePath(kGoldenFile));
  int formats = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string what, name, masked;
    uint64_t seed = 0, hash = 0;
    if (!(fields >> what) || what != "hashes") continue;
    fields >> name >> seed >> masked >> std::hex;
    const auto dtype = Named(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    std::vector<uint64_t> hashes;
    while (fields >> hash) hashes.push_back(hash);
    ASSERT_EQ(hashes.size(), 16u) << name;
    const auto size = static_cast<size_t>(InfoOf(*dtype).block_bytes);
    std::vector<std::byte> bytes = RandomBytes(seed, hashes.size() * kBlocks * size);
    std::istringstream places(masked);
    for (std::string place; masked != "-" && std::getline(places, place, ',');) {
      for (size_t at = std::stoul(place); at < bytes.size(); at += size) bytes[at] &= std::byte{0xbf};
    }
    for (size_t i = 0; i < hashes.size(); ++i) {
      std::vector<float> got(static_cast<size_t>(kBlocks * InfoOf(*dtype).block_elements));
      Dequantize(*dtype, bytes.data() + i * kBlocks * size, static_cast<int64_t>(got.size()), got.data());
      EXPECT_EQ(Fnv1a(got), hashes[i]) << name << " blocks from " << i * kBlocks;
    }
    ++formats;
  }
  EXPECT_EQ(formats, 24);
}

TEST(Quant, EverySetDequantizesToTheSameBits) {
  for (DType dtype : testing::kAllDTypes) {
    for (const bool tail : {false, true}) {
      const int64_t cols = InfoOf(dtype).block_elements == 1 ? 77 : tail ? 256 : 1280;
      const testing::OwnedMatrix w = testing::RandomMatrix(dtype, 3, cols, 3);
      std::vector<float> want(static_cast<size_t>(cols)), got(want.size());
      for (int64_t row = 0; row < 3; ++row) {
        Dequantize(dtype, static_cast<const std::byte*>(w.view.data) + row * w.view.row_bytes, cols, want.data());
        for (const Ops* ops : RunnableOps()) {
          ops->dequantize_row(w.view, row, got.data());
          EXPECT_TRUE(testing::SameBits(got.data(), want.data(), cols)) << ops->name << " " << InfoOf(dtype).name;
        }
      }
    }
  }
}

TEST(Quant, ErrorIsWithinHalfAStep) {
  const std::vector<float> x = testing::RandomFloats(320, 5);
  for (DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    std::vector<std::byte> bytes(static_cast<size_t>(RowBytes(dtype, 320)));
    Quantize(dtype, x.data(), 320, bytes.data());
    std::vector<float> back(320);
    Dequantize(dtype, bytes.data(), 320, back.data());
    for (int b = 0; b < 320; b += 32) {
      float low = 0, high = 0;
      for (int i = b; i < b + 32; ++i) {
        low = std::min(low, x[i]);
        high = std::max(high, x[i]);
      }
      const float largest = std::max(high, -low);
      // q4_0 covers [-8, 7] steps: the far end of the other sign may be clipped by one step.
      const float step = dtype == DType::kQ8_0   ? largest / 127
                         : dtype == DType::kQ4_1 ? (high - low) / 15
                                                 : largest / 4;
      for (int i = b; i < b + 32; ++i) EXPECT_NEAR(back[i], x[i], 0.51f * step + 1e-3f * largest) << InfoOf(dtype).name;
    }
  }
}

}  // namespace
}  // namespace tactus::compute
