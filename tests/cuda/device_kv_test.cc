// DeviceKv: a block is swapped as a whole, by one copy per size of its parts.
#include "compute/cuda/device_kv.h"

#include <algorithm>
#include <set>

#include "compute/weights/model_description.h"
#include "cuda/emulator/device_test.h"
#include "support/source_path.h"

namespace tactus::compute::cuda {
namespace {

class DeviceKvTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Lanes, DeviceKvTest, ::testing::Values(LaneOrder::kForward));

constexpr int64_t kBlocks = 5;
constexpr int32_t kBlockSize = 8;

struct Pages {
  std::byte* at = nullptr;
  int64_t bytes = 0;  // of a block
};

// K, V and scales of all layers.
std::vector<Pages> PagesOf(const DeviceKv& kv) {
  std::vector<Pages> all;
  for (const KvPages& p : kv.layers()) {
    if (p.k == nullptr) continue;
    const int64_t positions = int64_t{p.kv_heads} * p.block_size;
    for (void* const values : {p.k, p.v}) {
      all.push_back({static_cast<std::byte*>(values), positions * p.head_dim * SizeOf(p.type)});
    }
    if (p.type != KvType::kInt8) continue;
    for (float* const scales : {p.k_scales, p.v_scales})
      all.push_back({reinterpret_cast<std::byte*>(scales), positions * 4});
  }
  return all;
}

std::vector<unsigned char> Read(Stream& s, const Pages& pages, int64_t block) {
  std::vector<unsigned char> bytes(static_cast<size_t>(pages.bytes));
  s.CopyToHost(bytes.data(), pages.at + block * pages.bytes, pages.bytes);
  return bytes;
}

// The byte at `i` of part `part` of a block.
unsigned char ByteOf(size_t part, int64_t block, int64_t i) {
  return static_cast<unsigned char>(31 * part + 101 * static_cast<size_t>(block) + 7 * static_cast<size_t>(i) +
                                    static_cast<size_t>(i) / 256);
}

TEST_P(DeviceKvTest, SwappedBlocksComeBackWhole) {
  for (const auto& [model, type] : {std::pair<const char*, KvType>{"llama-gqa", KvType::kBF16},
                                    {"llama-gqa", KvType::kInt8},
                                    {"gemma4", KvType::kBF16}}) {  // heads of two sizes
    SCOPED_TRACE(model);
    const auto description = DescribeModel(test::SourcePath("tests/golden/data/") + model);
    ASSERT_TRUE(description.ok()) << description.status().ToString();
    const auto made = DeviceKv::Create(description->config, type, kBlocks, 2, kBlockSize);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    DeviceKv& kv = **made;
    const std::vector<Pages> pages = PagesOf(kv);
    int64_t total = 0;
    std::set<int64_t> sizes;
    for (size_t part = 0; part < pages.size(); ++part) {
      total += pages[part].bytes;
      sizes.insert(pages[part].bytes);
      std::vector<unsigned char> bytes;
      for (int64_t b = 0; b < kBlocks; ++b) {
        for (int64_t i = 0; i < pages[part].bytes; ++i) bytes.push_back(ByteOf(part, b, i));
      }
      stream().CopyToDevice(pages[part].at, bytes.data(), static_cast<int64_t>(bytes.size()));
    }
    EXPECT_EQ(total, kv.block_bytes());

    const int64_t before = emulator::CurrentCounts().copies;
    kv.SwapOut(stream(), 3, 1);
    kv.SwapOut(stream(), 4, 0);
    EXPECT_EQ(emulator::CurrentCounts().copies - before, 2 * static_cast<int64_t>(sizes.size()));
    kv.SwapIn(stream(), 1, 0);
    kv.SwapIn(stream(), 0, 2);
    const int64_t expected[kBlocks] = {3, 1, 4, 3, 4};
    for (size_t part = 0; part < pages.size(); ++part) {
      for (int64_t b = 0; b < kBlocks; ++b) {
        const std::vector<unsigned char> bytes = Read(stream(), pages[part], b);
        for (int64_t i = 0; i < pages[part].bytes; ++i) {
          ASSERT_EQ(bytes[static_cast<size_t>(i)], ByteOf(part, expected[b], i))
              << "part " << part << ", block " << b << ", byte " << i;
        }
      }
    }
    std::vector<std::byte> moved(static_cast<size_t>(kv.block_bytes()));
    kv.Read(stream(), 1, moved.data());
    kv.WriteHost(0, moved.data());
    kv.SwapIn(stream(), 0, 4);
    for (size_t part = 0; part < pages.size(); ++part) {
      EXPECT_EQ(Read(stream(), pages[part], 4), Read(stream(), pages[part], 1)) << "part " << part;
    }
  }
}

}  // namespace
}  // namespace tactus::compute::cuda
