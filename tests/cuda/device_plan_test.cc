// The division of a GPU's memory, a pure function.
#include "compute/cuda/device_plan.h"

#include <gtest/gtest.h>

#include "compute/weights/model_description.h"
#include "support/source_path.h"

namespace tactus::compute::cuda {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

class DevicePlanTest : public testing::Test {
 protected:
  DevicePlanTest() {
    auto description = DescribeModel(test::SourcePath("tests/golden/data/llama-gqa-bf16"));
    EXPECT_TRUE(description.ok()) << description.status().ToString();
    config_ = description->config;
    input_.free_bytes = 96 * kMiB;
    input_.demand.max_slots = 10;
    input_.weight_bytes = kMiB;
    input_.host_free_bytes = 4096 * kMiB;
    input_.demand.max_model_len = 64;
    input_.demand.max_num_seqs = 1000000;
    input_.demand.max_step_tokens = 64;
    input_.demand.front_end_bytes = 512 * kMiB;
  }
  MemoryGrant Plan() const {
    auto grant = PlanDeviceMemory(config_, input_);
    EXPECT_TRUE(grant.ok()) << grant.status().ToString();
    return grant.ok() ? *grant : MemoryGrant{};
  }
  void ExpectRefusal(const char* flag, std::initializer_list<const char*> parts) const {
    const Status status = PlanDeviceMemory(config_, input_).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.param(), flag) << status.message();
    for (const char* part : parts)
      EXPECT_NE(status.message().find(part), std::string::npos) << part << " is not in: " << status.message();
  }

  ModelConfig config_;
  DevicePlanInput input_;
};

TEST_F(DevicePlanTest, KvGetsWhatIsLeft) {
  const MemoryGrant grant = Plan();
  EXPECT_GT(grant.num_blocks, 0);
  EXPECT_LE(grant.total_bytes, input_.free_bytes);
  EXPECT_GT(grant.total_bytes, input_.free_bytes / 2);
  EXPECT_EQ(grant.swap_blocks, 0);
  EXPECT_EQ(grant.front_end_bytes, 512 * kMiB);
}

TEST_F(DevicePlanTest, ADraftModelTakesMemoryOfTheDevice) {
  const MemoryGrant without = Plan();
  input_.demand.draft_bytes = 16 * kMiB;
  const MemoryGrant with = Plan();
  EXPECT_LT(with.kv_bytes, without.kv_bytes - 14 * kMiB);
  EXPECT_LE(with.total_bytes, input_.free_bytes);
  EXPECT_NE(with.text.find("draft model         16.0 MiB"), std::string::npos) << with.text;
  input_.demand.draft_bytes = 100 * kMiB;
  ExpectRefusal("model", {"draft model 100.0 MiB", "96.0 MiB of the GPU's memory are free"});
}

// The codes of a step's widest input with a scale for each token, and the scratch of the library, for each part.
TEST_F(DevicePlanTest, TokensInFp8TakeTheirCodesAndSums) {
  input_.free_bytes = 512 * kMiB;
  input_.demand.kv_bytes = kMiB;
  for (const int64_t parts : {1, 2}) {
    input_.overlap = parts == 2;
    input_.fp8_tokens = false;
    const MemoryGrant without = Plan();
    input_.fp8_tokens = true;
    const MemoryGrant with = Plan();
    EXPECT_EQ(with.kv_bytes, without.kv_bytes);
    const int64_t more = with.total_bytes - without.total_bytes - parts * 64 * kMiB;
    int64_t inner = 0;
    for (const LayerBlock& b : config_.layers[0]) {
      if (const auto* f = std::get_if<GatedFeedForwardBlock>(&b.block)) inner = f->inner;
    }
    EXPECT_GT(inner, config_.hidden_size);
    const int64_t tokens = 64 + (parts == 2 ? 64 / 2 + 1 + input_.demand.block_size : 0);
    EXPECT_EQ(more, tokens * (inner + 4)) << parts;
  }
}

TEST_F(DevicePlanTest, BlockTablesOfAllSlotsTakeMemoryOfTheDevice) {
  const MemoryGrant before = Plan();
  input_.demand.max_slots += 1 << 20;  // 4 entries of 4 bytes each
  const MemoryGrant grant = Plan();
  EXPECT_NE(grant.text.find("scratch             48.0 MiB"), std::string::npos) << grant.text;
  EXPECT_LT(grant.kv_bytes, before.kv_bytes - 14 * kMiB);
  input_.demand.max_slots = 0;
  input_.demand.max_num_seqs = 2 << 20;
  EXPECT_NE(Plan().text.find("scratch             64.0 MiB"), std::string::npos) << Plan().text;
}

TEST_F(DevicePlanTest, RulesAndSwapSpaceTakeMemoryOfTheHost) {
  const MemoryGrant before = Plan();
  input_.demand.rules_bytes = 3000 * kMiB;
  input_.demand.swap_bytes = 800 * kMiB;
  const MemoryGrant grant = Plan();
  EXPECT_EQ(grant.num_blocks, before.num_blocks);
  EXPECT_GT(grant.swap_blocks, 0);
  const int64_t left = 4096 * kMiB - 3000 * kMiB - grant.swap_blocks * (grant.kv_bytes / grant.num_blocks);
  EXPECT_EQ(grant.front_end_bytes, left);
  input_.demand.swap_bytes = 1090 * kMiB;
  ExpectRefusal("swap-space",
                {"rules of answers 2.93 GiB", "at least 48.0 MiB for requests", "4.00 GiB", "--swap-space"});
  input_.host_free_bytes = -1;  // not known
  EXPECT_EQ(Plan().front_end_bytes, 512 * kMiB);
}

TEST_F(DevicePlanTest, RefusalsNameWhatIsThereAndTheFlag) {
  input_.demand.kv_bytes = 63 * kMiB;
  ExpectRefusal("kv-cache-memory", {"scratch 32.0 MiB", "KV 63.0 MiB", "set --kv-cache-memory to at most"});
  input_.demand.kv_bytes = 1;
  ExpectRefusal("max-model-len", {"--max-model-len 64 needs"});
  input_.demand.kv_bytes = 0;
  input_.demand.max_model_len = config_.max_position + 1;
  ExpectRefusal("max-model-len", {"beyond"});
  input_.demand.max_model_len = 64;
  input_.free_bytes = 1;
  ExpectRefusal("model", {"weights 1.0 MiB", "--device cpu"});
  input_.weight_bytes = 0;
  ExpectRefusal("max-num-batched-tokens", {"--device cpu"});
}

TEST_F(DevicePlanTest, MemoryWithoutRoomForKvIsRefusedWithWhatToLower) {
  input_.demand.max_model_len = 0;  // the model's
  const MemoryGrant grant = Plan();
  input_.free_bytes = grant.total_bytes - grant.kv_bytes + 1;
  ExpectRefusal("max-model-len", {"the shortest sequence needs", "for 0 tokens", "lower --max-num-batched-tokens"});
}

}  // namespace
}  // namespace tactus::compute::cuda
