// KV memory by its bytes: its size, the place of layers, and that a copy moves exactly one block of every layer, K and
// V.
#include "compute/exec/kv_memory.h"
#include "compute/config/architecture.h"
#include "compute/weights/model_shapes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace tactus::kv_memory_test {
namespace {

compute::ModelConfig Config() {
  compute::StatedShape shape;
  shape.num_heads = shape.num_kv_heads = 2;
  shape.head_dim = 8;
  shape.window.assign(3, 0);
  compute::ModelConfig c;
  tactus::test::NoFields fields;
  c.layers = compute::PreNormLayers(fields, shape, &c);
  return c;
}

// Bytes of one block's K.
int64_t BlockBytes(compute::DType dtype) {
  return 2 * 16 * (dtype == compute::DType::kF32 ? 32 : dtype == compute::DType::kBF16 ? 16 : 8 + 4);
}

class KvMemoryTest : public testing::TestWithParam<compute::DType> {};

TEST_P(KvMemoryTest, LayersFollowEachOtherAndFillIt) {
  auto memory = compute::KvMemory::Create(Config(), GetParam(), 5, 16);
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  const int64_t half = 5 * BlockBytes(GetParam());
  EXPECT_EQ((*memory)->bytes(), 3 * 2 * half);
  const auto layers = (*memory)->layers();
  ASSERT_EQ(layers.size(), 3u);
  const auto* base = static_cast<const std::byte*>(layers[0].k);
  for (size_t l = 0; l < 3; ++l) {
    EXPECT_EQ(static_cast<const std::byte*>(layers[l].k) - base, static_cast<int64_t>(2 * l) * half)
        << "K of layer " << l;
    EXPECT_EQ(static_cast<const std::byte*>(layers[l].v) - base, static_cast<int64_t>(2 * l + 1) * half)
        << "V of layer " << l;
    EXPECT_EQ(layers[l].dtype, GetParam());
    EXPECT_EQ(layers[l].block_size, 16);
    EXPECT_EQ(layers[l].kv_heads, 2);
    EXPECT_EQ(layers[l].head_dim, 8);
    EXPECT_EQ(compute::KvBlockBytes(layers[l]), BlockBytes(GetParam()));
  }
}

std::vector<uint8_t> Contents(const compute::KvMemory& memory) {
  const auto* bytes = static_cast<const uint8_t*>(memory.layers()[0].k);
  return {bytes, bytes + memory.bytes()};
}
// A pattern in which all blocks differ.
void Fill(compute::KvMemory* memory, uint32_t seed) {
  auto* bytes = static_cast<uint8_t*>(memory->layers()[0].k);
  for (int64_t i = 0; i < memory->bytes(); ++i)
    bytes[i] = static_cast<uint8_t>((static_cast<uint32_t>(i) * 2654435761u + seed) >> 24);
}

TEST_P(KvMemoryTest, ACopyMovesOneBlockOfEveryLayer) {
  auto from = compute::KvMemory::Create(Config(), GetParam(), 5, 16),
       to = compute::KvMemory::Create(Config(), GetParam(), 3, 16);
  ASSERT_TRUE(from.ok() && to.ok());
  Fill(from->get(), 1);
  Fill(to->get(), 77);
  const std::vector<uint8_t> source = Contents(**from), before = Contents(**to);
  (*from)->CopyBlockTo(to->get(), 4, 1);
  const std::vector<uint8_t> after = Contents(**to);
  EXPECT_EQ(Contents(**from), source);
  const auto block = static_cast<size_t>(BlockBytes(GetParam()));
  for (size_t half = 0; half < 6; ++half) {  // K and V of each layer
    for (size_t b = 0; b < 3; ++b) {
      const size_t at = (half * 3 + b) * block;
      const uint8_t* want = b == 1 ? source.data() + (half * 5 + 4) * block : before.data() + at;
      EXPECT_EQ(std::memcmp(after.data() + at, want, block), 0)
          << (half % 2 == 0 ? "K" : "V") << " of layer " << half / 2 << " block " << b;
    }
  }
  (*from)->CopyBlock(0, 3);  // within one memory
  const std::vector<uint8_t> within = Contents(**from);
  for (size_t half = 0; half < 6; ++half) {
    const uint8_t* layer = within.data() + half * 5 * block;
    EXPECT_EQ(std::memcmp(layer + 3 * block, layer, block), 0);
    EXPECT_EQ(std::memcmp(layer + 4 * block, source.data() + (half * 5 + 4) * block, block), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, KvMemoryTest,
                         testing::Values(compute::DType::kF32, compute::DType::kBF16, compute::DType::kInt8),
                         [](const auto& test) { return std::string(compute::InfoOf(test.param).name); });

// The second of three layers reads the first one's K and V; the third has smaller heads.
TEST(KvMemory, ALayerWithoutKAndVOfItsOwnTakesNoMemory) {
  compute::ModelConfig c = Config();
  std::get<compute::AttentionBlock>(c.layers[1][0].block).kv_layer = 0;
  std::get<compute::AttentionBlock>(c.layers[2][0].block).head_dim = 4;
  const auto memory = compute::KvMemory::Create(c, compute::DType::kF32, 5, 16);
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  const int64_t first = 2 * 16 * 8 * 4, third = first / 2;
  EXPECT_EQ((*memory)->bytes(), 5 * 2 * (first + third));
  EXPECT_EQ((*memory)->block_bytes(), 2 * (first + third));
  EXPECT_EQ(16 * c.KvBytesPerToken(compute::DType::kF32), 2 * (first + third));
  EXPECT_EQ(compute::KvBlockBytes((*memory)->layers()[1]), 0);
  EXPECT_EQ(compute::KvBlockBytes((*memory)->layers()[2]), third);
}

TEST(KvMemory, EmptyAndOverflowingSizesAreRefusedWithTheirFlag) {
  const auto refused = [](int64_t blocks, int32_t block_size) {
    const Status status =
        compute::KvMemory::Create(Config(), compute::DType::kBF16, blocks, block_size, "swap-space").status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << blocks << " " << block_size;
    EXPECT_EQ(status.param(), "swap-space");
    return status.message();
  };
  EXPECT_NE(refused(0, 16).find("0 blocks of 16 tokens"), std::string::npos);
  EXPECT_NE(refused(4, 0).find("4 blocks of 0 tokens"), std::string::npos);
  EXPECT_NE(refused(std::numeric_limits<int64_t>::max() / 8, 16).find("overflows"), std::string::npos);
  EXPECT_NE(refused(std::numeric_limits<int64_t>::max() / 600, 16).find("overflows"), std::string::npos)
      << "one layer fits, but not all";
  EXPECT_TRUE(compute::KvMemory::Create(Config(), compute::DType::kBF16, 1, 1).ok());
}

}  // namespace
}  // namespace tactus::kv_memory_test
