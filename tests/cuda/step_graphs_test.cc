// Steps of decodes as CUDA graphs: the bits of steps without them, graphs that serve several steps, and new ones where
// memory has moved. Steps without enough memory.
#include <gtest/gtest.h>

#include <map>
#include <new>

#include "base/token_grammar.h"
#include "compute/cuda/step_graphs.h"
#include "cuda/cuda_runner.h"
#include "cuda/emulator/emulator.h"
#include "support/source_path.h"

namespace tactus::test {
namespace {

using compute::cuda::KvType;
using compute::cuda::Real;
using compute::cuda::StepGraphs;

constexpr int32_t kSlots = 12, kBlock = 16, kBlocksEach = 40;

// Sequences with random prompts on one model, each in its own blocks or behind a shared prefix.
class Sequences {
 public:
  Sequences(const std::string& model, const CudaModelOptions& options) {
    auto description = compute::DescribeModel(SourcePath("tests/golden/data/") + model);
    ExpectOk(description.status());
    size_.num_blocks = kSlots * kBlocksEach;
    size_.block_size = kBlock;
    size_.max_slots = kSlots;
    size_.max_step_tokens = 600;
    size_.max_step_items = kSlots;
    size_.max_model_len = 600 * kBlock;
    auto runner = CudaRunner::Create(*description, options, size_);
    ExpectOk(runner.status());
    runner_ = std::move(*runner);
    runner_->set_logits_observer([this](int32_t item, int32_t position, std::span<const float> logits) {
      auto& to = logits_[{plan_.items[static_cast<size_t>(item)].slot, position}];
      to.assign(logits.begin(), logits.end());
    });
  }
  ~Sequences() {
    for (const std::string& finding : compute::cuda::emulator::TakeFindings()) ADD_FAILURE() << finding;
  }

  // Computes a prompt of `tokens`, of which the first `shared` are in slot 0's blocks.
  void Start(SlotId slot, int32_t tokens, int32_t shared = 0) {
    Begin();
    AddTable(slot, shared);
    RunPrompt(slot, tokens, shared);
  }
  // The same, where an earlier step wrote the block table.
  void StartWithTable(SlotId slot, int32_t tokens) {
    Begin();
    RunPrompt(slot, tokens, 0);
  }
  // A step that writes a slot's block table and fails, since there is no memory for a sequence with penalties.
  void FailWithTable(SlotId slot) {
    Begin();
    AddTable(slot, 0);
    SequenceStart& start = plan_.starts.emplace_back();
    start.slot = slot + 1;
    start.sampling.params.repetition_penalty = 1.5f;
    compute::cuda::emulator::SetDeviceShape({.memory_bytes = compute::cuda::emulator::CurrentCounts().memory_bytes});
    StepResult result;
    runner_->Run(plan_, &result);
    compute::cuda::emulator::SetDeviceShape({});
    ASSERT_EQ(result.status.code(), StatusCode::kResourceExhausted) << result.status.ToString();
  }
  // A step that writes the block tables of all slots but the first.
  void WriteTables() {
    Begin();
    const auto entries = static_cast<int32_t>(size_.max_model_len / kBlock);
    plan_.table_blocks.resize(static_cast<size_t>(entries));
    for (SlotId slot = 1; slot < kSlots; ++slot) plan_.table_updates.push_back({slot, 0, entries, 0});
    Run();
  }
  // One token of each.
  void Decode(const std::vector<SlotId>& slots) {
    Begin();
    for (const SlotId slot : slots) {
      plan_.items.push_back({.slot = slot,
                             .first_position = lengths_[slot],
                             .count = 1,
                             .logit_rows = 1,
                             .sample = true,
                             .token_offset = static_cast<int32_t>(plan_.tokens.size())});
      plan_.tokens.push_back(last_[slot]);
    }
    Run();
  }

  const StepGraphs& graphs() const { return runner_->launcher().graphs(); }
  // The rows of logits, by slot and position.
  const std::map<std::pair<SlotId, int32_t>, std::vector<float>>& logits() const { return logits_; }

 private:
  static void ExpectOk(const Status& status) { ASSERT_TRUE(status.ok()) << status.ToString(); }
  void Begin() {
    const StepId next = plan_.step + 1;
    plan_.Clear();
    plan_.step = next;
  }
  void AddTable(SlotId slot, int32_t shared) {
    plan_.table_updates.push_back({slot, 0, kBlocksEach, 0});
    for (int32_t b = 0; b < kBlocksEach; ++b) {
      plan_.table_blocks.push_back(b < shared / kBlock ? b : slot * kBlocksEach + b);
    }
  }
  void RunPrompt(SlotId slot, int32_t tokens, int32_t shared) {
    plan_.starts.emplace_back().slot = slot;
    plan_.items.push_back(
        {.slot = slot, .first_position = shared, .count = tokens - shared, .logit_rows = 1, .sample = true});
    for (int32_t t = shared; t < tokens; ++t) plan_.tokens.push_back(1 + (t * 7 + slot * 13) % 90);
    Run();
  }
  void Run() {
    StepResult result;
    runner_->Run(plan_, &result);
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
    for (size_t i = 0; i < plan_.items.size(); ++i) {
      ASSERT_EQ(result.items[i].num_tokens, 1);
      const StepItem& item = plan_.items[i];
      lengths_[item.slot] = item.first_position + item.count;
      last_[item.slot] = result.tokens[static_cast<size_t>(result.items[i].token_offset)];
    }
  }

  ExecutorSize size_;
  std::unique_ptr<CudaRunner> runner_;
  StepPlan plan_;
  std::map<SlotId, int32_t> lengths_;
  std::map<SlotId, TokenId> last_;
  std::map<std::pair<SlotId, int32_t>, std::vector<float>> logits_;
};

std::vector<SlotId> FirstSlots(int32_t n) {
  std::vector<SlotId> slots;
  for (int32_t s = 0; s < n; ++s) slots.push_back(s);
  return slots;
}

// Different lengths, splits of long sequences, a shared prefix, 9 and 11 decodes that are padded to 10 and 12.
void RunSteps(Sequences* s) {
  s->Start(0, 300);
  for (SlotId slot = 1; slot < kSlots; ++slot) s->Start(slot, slot < 4 ? 290 + slot : 5 * slot, slot < 4 ? 272 : 0);
  for (const int32_t n : {12, 9, 9, 9, 11, 11, 11, 1, 1, 1, 9, 4, 4, 4}) s->Decode(FirstSlots(n));
  s->Decode({5});  // the graph of one decode of another sequence, with other units
  s->Decode({5});
}

struct Form {
  const char* name;
  const char* model;
  Real type;
  KvType kv_type;
};

class CudaGraphsTest : public testing::TestWithParam<Form> {};

TEST_P(CudaGraphsTest, GraphsChangeNoBit) {
  const Form& form = GetParam();
  CudaModelOptions options{.type = form.type, .kv_type = form.kv_type, .graphs = false};
  Sequences without(form.model, options);
  RunSteps(&without);
  options.graphs = true;
  Sequences with(form.model, options);
  RunSteps(&with);
  EXPECT_EQ(without.graphs().runs(), 0);
  EXPECT_GT(with.graphs().runs(), with.graphs().recorded()) << "no graph has served two steps";
  EXPECT_GE(with.graphs().recorded(), 4);
  ASSERT_EQ(with.logits().size(), without.logits().size());
  for (const auto& [at, logits] : without.logits()) {
    EXPECT_EQ(with.logits().at(at), logits) << "slot " << at.first << ", position " << at.second;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, CudaGraphsTest,
                         testing::Values(Form{"Float", "llama-gqa", Real::kF32, KvType::kF32},
                                         Form{"Bfloat16", "llama-gqa-bf16", Real::kBF16, KvType::kBF16},
                                         Form{"Int8Kv", "llama-gqa-bf16", Real::kBF16, KvType::kInt8},
                                         Form{"Windows", "gemma3", Real::kBF16, KvType::kBF16},
                                         Form{"Experts", "qwen3-moe", Real::kBF16, KvType::kBF16}),
                         [](const auto& test) { return std::string(test.param.name); });

// A step larger than any before moves the data of steps, to which graphs refer.
TEST(CudaGraphs, GraphsAreRecordedAgainWhereMemoryHasMoved) {
  Sequences s("llama-gqa", {});
  s.Start(0, 5);
  for (int32_t i = 0; i < 4; ++i) s.Decode({0});
  EXPECT_EQ(s.graphs().recorded(), 1);
  EXPECT_EQ(s.graphs().runs(), 3);
  s.WriteTables();  // more data than the first memory of steps has
  s.Decode({0});
  EXPECT_EQ(s.graphs().runs(), 3) << "a graph refers to memory that was freed";
  for (int32_t i = 0; i < 2; ++i) s.Decode({0});
  EXPECT_EQ(s.graphs().recorded(), 2);
  EXPECT_EQ(s.graphs().runs(), 5);
}

// A stream of a device without memory for graphs.
class FullStream final : public compute::cuda::Stream {
 public:
  void CopyToDevice(void*, const void*, int64_t) override {}
  void CopyToHost(void*, const void*, int64_t) override {}
  void GatherToHost(void*, const void*, int64_t, int64_t, int64_t) override {}
  void ScatterToDevice(void*, int64_t, const void*, int64_t, int64_t) override {}
  void CopyOnDevice(void*, const void*, int64_t) override {}
  void Fill(void*, int, int64_t) override {}
  void Wait(const compute::cuda::Event&) override {}
  void Synchronize() override {}
  void BeginCapture() override { captured = true, ++captures; }
  std::unique_ptr<compute::cuda::Graph> EndCapture() override {
    captured = false;
    return nullptr;
  }
  void Run(const compute::cuda::Graph&) override { ADD_FAILURE() << "there is no graph"; }

  bool captured = false;
  int captures = 0;
};

TEST(CudaGraphs, StepsRunWithoutGraphsWhereThereIsNoMemoryForThem) {
  StepGraphs graphs;
  FullStream stream;
  for (int step = 1, runs = 0; step <= 4; ++step) {
    EXPECT_TRUE(graphs.Run(stream, {7}, [&] { runs += stream.captured ? 0 : 1; }).ok());
    EXPECT_EQ(runs, step);
  }
  EXPECT_EQ(stream.captures, 2) << "recording is tried again, when other graphs have given their memory back";
  EXPECT_EQ(graphs.recorded(), 0);
}

TEST(CudaGraphs, RowsAreRoundedUpWithinTheLimit) {
  int64_t sizes = 0;
  for (int64_t n = 1, last = 0; n <= 512; ++n) {
    const int64_t rows = StepGraphs::RowsFor(n, 1 << 20);
    EXPECT_GE(rows, n);
    EXPECT_LE(4 * (rows - n), n) << n;
    EXPECT_GE(rows, last) << n;
    sizes += rows != last ? 1 : 0;
    last = rows;
  }
  EXPECT_LE(sizes, 32);
  EXPECT_EQ(StepGraphs::RowsFor(513, 1 << 20), 0);
  EXPECT_EQ(StepGraphs::RowsFor(33, 35), 35);
  EXPECT_EQ(StepGraphs::RowsFor(36, 35), 0);
  EXPECT_EQ(StepGraphs::RowsFor(0, 35), 0);
}

TEST(CudaSteps, BlockTablesOfMoreThan32BitsAreRefused) {
  const auto description = compute::DescribeModel(SourcePath("tests/golden/data/llama-gqa"));
  ASSERT_TRUE(description.ok()) << description.status().ToString();
  ExecutorSize size;
  size.num_blocks = size.max_step_items = 2;
  size.block_size = kBlock;
  size.max_step_tokens = kBlock;
  size.max_slots = 1 << 20;
  size.max_model_len = int64_t{kBlock} << 11;
  const Status refused = CudaRunner::Create(*description, {}, size).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("1048576 sequences need 2147483648 entries"), std::string::npos)
      << refused.message();
}

// A rule that allows every token, and has no memory for its next state.
class FullGrammar final : public TokenGrammar {
 public:
  explicit FullGrammar(int64_t vocab_size) : vocab_size_(vocab_size) {}
  std::unique_ptr<GrammarState> Start() const override { return std::make_unique<State>(); }
  int64_t vocab_size() const override { return vocab_size_; }

 private:
  class State final : public GrammarState {
    bool FillMask(std::span<uint32_t> mask) override {
      std::fill(mask.begin(), mask.end(), ~0u);
      return true;
    }
    bool Accept(TokenId) override { throw std::bad_alloc(); }
    int32_t CountValid(std::span<const TokenId> tokens) override { return static_cast<int32_t>(tokens.size()); }
    void Forced(int32_t, std::vector<TokenId>* tokens) override { tokens->clear(); }
  };
  const int64_t vocab_size_;
};

TEST(CudaSteps, ShortageWhileAStepFinishesFailsThatStepAlone) {
  const auto description = compute::DescribeModel(SourcePath("tests/golden/data/llama-gqa"));
  ASSERT_TRUE(description.ok()) << description.status().ToString();
  ExecutorSize size;
  size.num_blocks = size.max_slots = size.max_step_items = 2;
  size.block_size = kBlock;
  size.max_step_tokens = size.max_model_len = kBlock;
  const auto runner = CudaRunner::Create(*description, {}, size);
  ASSERT_TRUE(runner.ok()) << runner.status().ToString();
  StepPlan plan;
  StepResult result;
  const auto run = [&](SlotId slot, std::shared_ptr<const TokenGrammar> grammar) {
    plan.Clear();
    plan.step = slot;
    SequenceStart& start = plan.starts.emplace_back();
    start.slot = slot;
    start.sampling.grammar = std::move(grammar);
    plan.table_updates.push_back({slot, 0, 1, 0});
    plan.table_blocks = {slot};
    plan.items.push_back({.slot = slot, .first_position = 0, .count = 2, .logit_rows = 1, .sample = true});
    plan.tokens = {5, 6};
    (*runner)->Run(plan, &result);
  };
  run(0, std::make_shared<FullGrammar>(description->config.vocab_size));
  EXPECT_EQ(result.status.code(), StatusCode::kResourceExhausted) << result.status.ToString();
  EXPECT_FALSE(result.device_failed);
  run(1, nullptr);
  EXPECT_TRUE(result.status.ok()) << result.status.ToString();
  for (const std::string& finding : compute::cuda::emulator::TakeFindings()) ADD_FAILURE() << finding;
}

TEST(CudaSteps, TablesOfAStepThatFailedReachTheDevice) {
  Sequences one("llama-gqa", {}), other("llama-gqa", {});
  if (compute::cuda::emulator::CurrentCounts().memory_bytes == 0)
    GTEST_SKIP() << "tests cannot limit the memory of a real device";
  for (Sequences* sequences : {&one, &other}) sequences->Start(0, 40);
  one.Start(1, 40);
  other.FailWithTable(1);
  other.StartWithTable(1, 40);
  EXPECT_EQ(one.logits(), other.logits());
}

}  // namespace
}  // namespace tactus::test
