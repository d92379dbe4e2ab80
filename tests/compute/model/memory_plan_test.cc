#include "base/available_memory.h"
#include "compute/config/config.h"
#include "compute/kernels/kernel_set.h"
#include "compute/weights/model_files.h"
#include "compute/weights/model_shapes.h"

namespace tactus::memory_plan_test {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;
constexpr StatusCode kBad = StatusCode::kInvalidArgument;

// TinyLlama 1.1B.
test::HandMadeModel TinyLlamaModel() {
  test::HandMadeModel m;
  m.config.hidden_size = 2048;
  m.config.vocab_size = 32000;
  m.config.max_position = 2048;
  m.shape.num_layers = 22;
  m.shape.num_heads = 32;
  m.shape.num_kv_heads = 4;
  m.shape.head_dim = 64;
  m.shape.intermediate_size = 5632;
  m.shape.window.assign(22, 0);
  return m;
}
compute::ModelConfig TinyLlama() {
  return TinyLlamaModel().Make();
}
compute::MemoryPlanInput Input() {
  compute::MemoryPlanInput in;
  in.weight_bytes = 2 * kGiB;
  in.available_bytes = 16 * kGiB;
  return in;
}

TEST(ModelConfig, CountsParametersAndKvBytes) {
  EXPECT_EQ(TinyLlama().NumParameters(), 1'100'048'384);  // as transformers counts them
  EXPECT_EQ(TinyLlama().KvBytesPerToken(compute::DType::kBF16), 22 * 2 * 4 * 64 * 2);
  EXPECT_EQ(TinyLlama().KvBytesPerToken(compute::DType::kF32), 22 * 2 * 4 * 64 * 4);
  EXPECT_EQ(TinyLlama().KvBytesPerToken(compute::DType::kInt8), 22 * 2 * 4 * (64 + 4));  // a scale per head
  compute::ModelConfig tied = TinyLlama();
  tied.tie_embeddings = true;
  EXPECT_EQ(tied.NumParameters(), 1'100'048'384 - 32000 * 2048);
  test::HandMadeModel biased = TinyLlamaModel();
  biased.shape.qkv_bias = biased.shape.o_bias = biased.shape.mlp_bias = biased.shape.qk_norm = true;
  EXPECT_EQ(biased.Make().NumParameters() - TinyLlama().NumParameters(),
            22 * (2048 + 2 * 256 + 2048 + 2 * 5632 + 2048 + 2 * 64));
}

TEST(ModelConfig, ValidationNamesTheField) {
  using M = test::HandMadeModel;
  struct Case {
    int64_t& (*field)(M& m);
    const char* name;
  };
  const Case cases[] = {{[](M& m) -> int64_t& { return m.config.hidden_size; }, "hidden_size"},
                        {[](M& m) -> int64_t& { return m.shape.num_layers; }, "num_layers"},
                        {[](M& m) -> int64_t& { return m.shape.num_heads; }, "num_heads"},
                        {[](M& m) -> int64_t& { return m.shape.num_kv_heads; }, "num_kv_heads"},
                        {[](M& m) -> int64_t& { return m.shape.head_dim; }, "head_dim"},
                        {[](M& m) -> int64_t& { return m.config.vocab_size; }, "vocab_size"},
                        {[](M& m) -> int64_t& { return m.shape.intermediate_size; }, "intermediate_size"},
                        {[](M& m) -> int64_t& { return m.config.max_position; }, "max_position"}};
  EXPECT_TRUE(TinyLlamaModel().Validate().ok());
  static_assert(compute::kMaxConfigHeadDim == compute::kMaxHeadDim,
                "a head_dim that the kernels refuse must not pass validation");
  for (const Case& x : cases) {
    for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
      M m = TinyLlamaModel();
      x.field(m) = bad;
      EXPECT_REFUSED(m.Validate(), kBad, x.name, std::to_string(bad));
    }
  }
  M m = TinyLlamaModel();
  m.shape.window.pop_back();
  EXPECT_REFUSED(m.Validate(), kBad, "21 entries for 22");
  compute::ModelConfig c = TinyLlama();
  c.rope.frequency_factors.assign(31, 1.0f);
  EXPECT_REFUSED(compute::ValidateConfig(c), kBad, "31 RoPE frequency factors");
}

TEST(MemoryPlan, SumsPartsAndCountsBlocks) {
  compute::MemoryPlanInput in = Input();
  in.kv_memory_bytes = kGiB;
  const auto plan = compute::PlanMemory(TinyLlama(), in);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const int64_t block_bytes = 16 * 22528;
  EXPECT_EQ(plan->num_blocks, kGiB / block_bytes);
  EXPECT_EQ(plan->kv_bytes, plan->num_blocks * block_bytes);
  EXPECT_EQ(plan->total_bytes, plan->weight_bytes + plan->kv_bytes + plan->activation_bytes);
  EXPECT_EQ(plan->max_model_len, 2048);
  // The logits of 256 sequences alone are 31 MiB.
  EXPECT_GT(plan->activation_bytes, 256 * 32000 * 4);
  EXPECT_LT(plan->activation_bytes, 256 * kMiB);
  EXPECT_NE(plan->ToString().find("blocks"), std::string::npos);
}

TEST(MemoryPlan, SwapSpaceIsWholeBlocksAndCounted) {
  compute::MemoryPlanInput in = Input();
  in.kv_memory_bytes = kGiB;
  const auto without = compute::PlanMemory(TinyLlama(), in);
  const int64_t block_bytes = 16 * 22528;
  in.swap_bytes = 10 * block_bytes + 5;
  const auto plan = compute::PlanMemory(TinyLlama(), in);
  ASSERT_TRUE(without.ok() && plan.ok());
  EXPECT_EQ(plan->swap_blocks, 10);
  EXPECT_EQ(plan->swap_bytes, 10 * block_bytes);
  EXPECT_EQ(plan->total_bytes, without->total_bytes + 10 * block_bytes);
  EXPECT_EQ(plan->num_blocks, without->num_blocks);
  EXPECT_NE(plan->ToString().find("10 blocks"), std::string::npos);
  EXPECT_EQ(without->ToString().find("swap"), std::string::npos);
  in.swap_bytes = block_bytes - 1;
  EXPECT_REFUSED(compute::PlanMemory(TinyLlama(), in).status(), kBad, "--swap-space", "no KV block");
  in.swap_bytes = in.available_bytes;
  EXPECT_REFUSED(compute::PlanMemory(TinyLlama(), in).status(), kBad, "lower --swap-space");
}

TEST(MemoryPlan, DefaultKvIsHalfOfWhatIsLeftAtMost8GiB) {
  compute::MemoryPlanInput in = Input();
  const auto wide = compute::PlanMemory(TinyLlama(), in);
  ASSERT_TRUE(wide.ok());
  const int64_t left = in.available_bytes - wide->weight_bytes - wide->activation_bytes;
  EXPECT_LE(wide->kv_bytes, left / 2);
  EXPECT_GT(wide->kv_bytes, left / 2 - 16 * 22528);
  in.available_bytes = 100 * kGiB;
  const auto capped = compute::PlanMemory(TinyLlama(), in);
  ASSERT_TRUE(capped.ok());
  EXPECT_LE(capped->kv_bytes, 8 * kGiB);
  EXPECT_GT(capped->kv_bytes, 8 * kGiB - 16 * 22528);
  in.max_num_seqs = 2;  // two sequences of 2048 tokens fill 256 blocks
  const auto few = compute::PlanMemory(TinyLlama(), in);
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(few->num_blocks, 256);
}

TEST(MemoryPlan, ContextShrinksToTheKvUnlessStated) {
  compute::MemoryPlanInput in = Input();
  in.kv_memory_bytes = 10 * 16 * 22528;
  const auto plan = compute::PlanMemory(TinyLlama(), in);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->num_blocks, 10);
  EXPECT_EQ(plan->max_model_len, 160);
  in.max_model_len = 161;
  EXPECT_REFUSED(compute::PlanMemory(TinyLlama(), in).status(), kBad, "--max-model-len 161", "160 tokens",
                 "22.0 KiB per token", "--kv-cache-memory to 3.8 MiB");
  in.max_model_len = 160;
  EXPECT_TRUE(compute::PlanMemory(TinyLlama(), in).ok());
}

TEST(MemoryPlan, APlanThatDoesNotFitNamesTheFlag) {
  compute::MemoryPlanInput in = Input();
  in.available_bytes = 2 * kGiB;
  EXPECT_REFUSED(compute::PlanMemory(TinyLlama(), in).status(), kBad, "weights 2.00 GiB", "only 2.00 GiB", "quantised");
  in = Input();
  in.kv_memory_bytes = 15 * kGiB;
  EXPECT_REFUSED(compute::PlanMemory(TinyLlama(), in).status(), kBad, "KV 15.00 GiB", "only 16.00 GiB",
                 "--kv-cache-memory to at most 13.");
  in = Input();
  in.kv_memory_bytes = 1000;
  EXPECT_REFUSED(compute::PlanMemory(TinyLlama(), in).status(), kBad, "16 tokens", "352.0 KiB", "--kv-cache-memory",
                 "--block-size");
  in = Input();
  in.max_step_tokens = 1 << 20;
  EXPECT_REFUSED(compute::PlanMemory(TinyLlama(), in).status(), kBad, "--max-num-batched-tokens");
  in = Input();
  in.max_model_len = 4096;
  EXPECT_REFUSED(compute::PlanMemory(TinyLlama(), in).status(), kBad, "--max-model-len 4096", "2048");
  in = Input();
  in.block_size = 0;
  EXPECT_REFUSED(compute::PlanMemory(TinyLlama(), in).status(), kBad, "--block-size");
  test::HandMadeModel broken = TinyLlamaModel();
  broken.shape.num_heads = 0;
  EXPECT_REFUSED(compute::PlanMemory(broken.Make(), Input()).status(), kBad, "num_heads");
}

TEST(MemoryPlan, LargestAllowedShapesDoNotOverflow) {
  test::HandMadeModel m;
  m.config.hidden_size = 1 << 20;
  m.config.vocab_size = 1 << 24;
  m.config.max_position = 1 << 30;
  m.shape.num_layers = compute::kMaxLayers;
  m.shape.num_heads = m.shape.num_kv_heads = 1 << 14;
  m.shape.head_dim = compute::kMaxConfigHeadDim;
  m.shape.intermediate_size = 1 << 22;
  m.shape.window.assign(compute::kMaxLayers, 0);
  ASSERT_TRUE(m.Validate().ok());
  const compute::ModelConfig c = m.Make();
  EXPECT_GT(c.NumParameters(), int64_t{1} << 50);
  compute::MemoryPlanInput in = Input();
  in.available_bytes = INT64_MAX / 2;
  in.max_num_seqs = in.max_step_tokens = 1 << 24;
  const auto plan = compute::PlanMemory(c, in);
  EXPECT_TRUE(plan.ok() || plan.status().code() == kBad);  // the undefined-behaviour sanitizer decides
}

TEST(AvailableMemory, TheSmallestLimitOfAllParentsApplies) {
  test::TempFolder root;
  root.Write("proc/meminfo", "MemTotal:       100 kB\nMemAvailable:   8388608 kB\n");
  EXPECT_EQ(AvailableMemoryBytes(root.path()), 8 * kGiB);
  root.Write("proc/self/cgroup", "0::/a/b\n");
  root.Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(AvailableMemoryBytes(root.path()), 8 * kGiB);
  root.Write("sys/fs/cgroup/a/memory.max", std::to_string(4 * kGiB) + "\n");
  root.Write("sys/fs/cgroup/a/memory.current", std::to_string(3 * kGiB) + "\n");
  root.Write("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file " + std::to_string(kGiB) + "\n");
  EXPECT_EQ(AvailableMemoryBytes(root.path()), 2 * kGiB) << "dropped page cache is free again";
  root.Write("sys/fs/cgroup/a/b/memory.max", std::to_string(kGiB));
  root.Write("sys/fs/cgroup/a/b/memory.current", std::to_string(2 * kGiB));
  EXPECT_EQ(AvailableMemoryBytes(root.path()), 0);
}

TEST(AvailableMemory, ReadsCgroupV1) {
  test::TempFolder root;
  root.Write("proc/meminfo", "MemAvailable:   8388608 kB\n");
  root.Write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n");
  root.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(2 * kGiB));
  root.Write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(kGiB));
  EXPECT_EQ(AvailableMemoryBytes(root.path()), kGiB);
}

TEST(AvailableMemory, ProcessLimitsCountMappedMemory) {
  test::TempFolder root;
  root.Write("proc/meminfo", "MemAvailable:   8388608 kB\n");
  root.Write("proc/self/status", "VmPeak:\t 9999999 kB\nVmSize:\t  524288 kB\nVmData:\t  262144 kB\n");
  const std::string unlimited = "unlimited            unlimited            bytes     \n";
  root.Write("proc/self/limits", "Max data size             " + unlimited + "Max address space         " + unlimited);
  EXPECT_EQ(AvailableMemoryBytes(root.path()), 8 * kGiB);
  root.Write("proc/self/limits",
             "Max data size             " + unlimited +
                 "Max address space         2147483648           unlimited            bytes     \n");
  EXPECT_EQ(AvailableMemoryBytes(root.path()), 2 * kGiB - 512 * kMiB);
  root.Write("proc/self/limits",
             "Max data size             1073741824           unlimited            bytes     \nMax address space        "
             " 2147483648           unlimited            bytes     \n");
  EXPECT_EQ(AvailableMemoryBytes(root.path()), kGiB - 256 * kMiB);
  root.Write("proc/self/limits", "Max address space         1048576           unlimited            bytes     \n");
  EXPECT_EQ(AvailableMemoryBytes(root.path()), 0) << "more is mapped than the limit allows";
}

TEST(MemoryPlan, TheFrontEndHasItsShare) {
  compute::MemoryPlanInput in = Input();
  const auto without = compute::PlanMemory(TinyLlama(), in);
  ASSERT_TRUE(without.ok());
  in.front_end_bytes = 704 * kMiB;
  const auto with = compute::PlanMemory(TinyLlama(), in);
  ASSERT_TRUE(with.ok()) << with.status().ToString();
  EXPECT_EQ(with->front_end_bytes, 704 * kMiB);
  EXPECT_NE(with->ToString().find("front end    up to 704.0 MiB as needed"), std::string::npos) << with->ToString();
  EXPECT_EQ(with->total_bytes, with->weight_bytes + with->activation_bytes + with->kv_bytes + with->front_end_bytes);
}

TEST(MemoryPlan, TheFrontEndShrinksOnSmallMachines) {
  compute::MemoryPlanInput in = Input();
  in.weight_bytes = 100 * kMiB;
  in.front_end_bytes = 704 * kMiB;
  in.max_step_tokens = 32;
  in.max_num_seqs = 4;
  int64_t activation_bytes = 0;
  for (const int64_t mib : {400, 600, 1000}) {
    in.available_bytes = mib * kMiB;
    const auto plan = compute::PlanMemory(TinyLlama(), in);
    ASSERT_TRUE(plan.ok()) << mib << ": " << plan.status().ToString();
    activation_bytes = plan->activation_bytes;
    const int64_t left = in.available_bytes - plan->weight_bytes - plan->activation_bytes;
    EXPECT_EQ(plan->front_end_bytes, std::max(48 * kMiB, left / 4)) << mib;
    EXPECT_LE(plan->kv_bytes, (left - plan->front_end_bytes) / 2) << mib;
  }
  in.available_bytes = in.weight_bytes + activation_bytes + 40 * kMiB;
  EXPECT_REFUSED(compute::PlanMemory(TinyLlama(), in).status(), kBad, "requests alone need 48.0 MiB",
                 "56.0 MiB more memory");
  in.available_bytes = kGiB;
  in.kv_memory_bytes = 890 * kMiB;
  EXPECT_REFUSED(compute::PlanMemory(TinyLlama(), in).status(), kBad, "--kv-cache-memory", "at most");
}

TEST(AvailableMemory, UnreadableFilesMeanNoLimit) {
  test::TempFolder root;
  EXPECT_EQ(AvailableMemoryBytes(root.path()), -1);
  if (!std::filesystem::exists("/proc/meminfo")) GTEST_SKIP() << "no /proc/meminfo here";
  EXPECT_GT(AvailableMemoryBytes(), 0);
}

}  // namespace
}  // namespace tactus::memory_plan_test
