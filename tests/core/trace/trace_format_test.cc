// The format of recordings: bounds of reads, the values allowed in a header, and the hash that compares plans.
#include "core/trace/trace_format.h"
#include "core/trace/trace_writer.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "core/loop/harness.h"

namespace tactus::core {
namespace {

using testing::Harness;
using testing::HarnessConfig;
using testing::MakeRequest;
using testing::Tokens;

TEST(TraceCursor, ReadsNothingBeyondTheEnd) {
  const uint8_t bytes[] = {7, 9, 9, 9, 9, 9, 9, 9, 9, 9};  // the trace is only the first few of them
  TraceCursor one(bytes, 1);
  EXPECT_EQ(one.Byte(), 7);
  EXPECT_TRUE(one.ok() && one.done());
  EXPECT_EQ(one.Byte(), 0) << "beyond the end";
  EXPECT_FALSE(one.ok());
  EXPECT_TRUE(one.done());
  EXPECT_EQ(one.offset(), 1u);

  TraceCursor seven(bytes, 7), eight(bytes, 8);
  EXPECT_EQ(seven.Fixed64(), 0u);
  EXPECT_FALSE(seven.ok());
  EXPECT_EQ(eight.Fixed64(), 0x0909090909090907u);
  EXPECT_TRUE(eight.ok() && eight.done());

  const uint8_t text[] = {3, 'a', 'b', 'c'};
  TraceCursor whole(text, 4), cut(text, 3), longer(text, 4);
  EXPECT_EQ(whole.String(3), "abc");
  EXPECT_TRUE(whole.ok() && whole.done());
  EXPECT_EQ(cut.String(3), "");
  EXPECT_FALSE(cut.ok());
  EXPECT_EQ(longer.String(2), "") << "one more than its limit";
  EXPECT_FALSE(longer.ok());
}

TEST(TraceCursor, ReadsBackWrittenNumbers) {
  TraceBytes bytes;
  const int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> values = {0, 1, -1, 63, 64, -64, -65, 8191, 8192, least, most};
  for (const int64_t v : values) PutSigned(v, &bytes);
  PutVarint(std::numeric_limits<uint64_t>::max(), &bytes);
  PutHash({1, 2}, &bytes);
  TraceCursor cursor(bytes.data(), bytes.size());
  for (const int64_t v : values) EXPECT_EQ(cursor.Signed(), v);
  EXPECT_EQ(cursor.Varint(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(cursor.Hash(), (Hash128{1, 2}));
  EXPECT_TRUE(cursor.ok() && cursor.done());

  const uint8_t endless[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0};
  TraceCursor long_number(endless, sizeof endless);
  EXPECT_EQ(long_number.Varint(), 0u);
  EXPECT_FALSE(long_number.ok()) << "no 64-bit number has eleven bytes";

  const auto bounded = [](uint8_t value) {
    TraceCursor c(&value, 1);
    c.Bounded(3, 5);
    return c.ok();
  };
  EXPECT_FALSE(bounded(2));
  EXPECT_TRUE(bounded(3));
  EXPECT_TRUE(bounded(5));
  EXPECT_FALSE(bounded(6));
}

TraceHeader Legal() {
  TraceHeader h;
  h.version = "1";
  h.scheduler.limits.max_num_seqs = 1;
  h.scheduler.limits.pipeline_steps = 1;
  h.scheduler.limits.max_model_len = 2;
  h.scheduler.limits.slot_capacity = 1;
  h.scheduler.limits.token_budget = 0;
  h.scheduler.limits.tbt_slo_ns = 0;
  h.scheduler.limits.watermark = 0.01;
  h.can_chain = true;
  h.kv.num_blocks = 1;
  h.kv.block_size = 1;
  h.kv.max_slots = 1;
  h.kv.max_blocks_per_slot = 1;
  h.kv.swap_blocks = 0;
  h.slot_capacity = 1;
  h.max_errors_in_a_row = 1;
  h.max_in_flight = 1;
  h.step_times = {5, 0, -1};
  return h;
}

// Headers of earlier formats lack some names.
TEST(TraceHeader, ReadsEarlierFormats) {
  TraceHeader h = Legal();
  TraceBytes bytes;
  PutHeader(h, &bytes);
  ASSERT_EQ(bytes[sizeof(kTraceMagic)], kTraceVersion);
  const auto take_out = [&bytes](const char* name) {
    TraceBytes added;
    PutString(name, &added);
    PutVarint(0, &added);
    const auto at = std::search(bytes.begin(), bytes.end(), added.begin(), added.end());
    ASSERT_NE(at, bytes.end()) << name;
    bytes.erase(at, at + static_cast<ptrdiff_t>(added.size()));
  };
  bytes[sizeof(kTraceMagic)] = 9;
  take_out("guesses");
  TraceCursor ninth(bytes.data(), bytes.size());
  const auto before = ReadHeader(&ninth);
  ASSERT_TRUE(before.ok() && ninth.done());
  EXPECT_FALSE(before->guesses);
  bytes[sizeof(kTraceMagic)] = 7;
  take_out("import-blocks");
  TraceCursor seventh(bytes.data(), bytes.size());
  EXPECT_TRUE(ReadHeader(&seventh).ok() && seventh.done());
  bytes[sizeof(kTraceMagic)] = 5;
  TraceCursor fifth(bytes.data(), bytes.size());
  EXPECT_TRUE(ReadHeader(&fifth).ok() && fifth.done()) << "its header is that of 6";
  bytes[sizeof(kTraceMagic)] = 4;
  take_out("gate");
  TraceCursor fourth(bytes.data(), bytes.size());
  EXPECT_TRUE(ReadHeader(&fourth).ok() && fourth.done());
  bytes[sizeof(kTraceMagic)] = 3;
  take_out("service-classes");
  TraceCursor third(bytes.data(), bytes.size());
  EXPECT_TRUE(ReadHeader(&third).ok() && third.done());
  bytes[sizeof(kTraceMagic)] = 2;
  take_out("max-draft-tokens");
  TraceCursor cursor(bytes.data(), bytes.size());
  const auto read = ReadHeader(&cursor);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_TRUE(cursor.done());
  EXPECT_EQ(read->max_draft_tokens, 0);
  EXPECT_EQ(read->step_times, h.step_times);
  bytes[sizeof(kTraceMagic)] = 1;
  TraceCursor older(bytes.data(), bytes.size());
  EXPECT_EQ(ReadHeader(&older).status().message(), "trace format 1, this program reads formats 2 to 11");
}

TEST(TraceHeader, ReadsBackClassesOfService) {
  TraceHeader h = Legal();
  h.scheduler.limits.classes = {{.name = "interactive", .slo = {.ttft_ns = kSecond}, .weight = 4}, {.name = "batch"}};
  TraceBytes bytes;
  PutHeader(h, &bytes);
  TraceCursor cursor(bytes.data(), bytes.size());
  const auto read = ReadHeader(&cursor);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  const std::vector<ServiceClass>& classes = read->scheduler.limits.classes;
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_EQ(classes[0].name, "interactive");
  EXPECT_EQ(classes[0].slo.ttft_ns, kSecond);
  EXPECT_EQ(classes[0].weight, 4);
  EXPECT_EQ(classes[1].name, "batch");
  h.scheduler.limits.classes[1].name = "interactive";
  bytes.clear();
  PutHeader(h, &bytes);
  TraceCursor twice(bytes.data(), bytes.size());
  EXPECT_NE(ReadHeader(&twice).status().message().find("declared twice"), std::string::npos);
}

TEST(TraceHeader, RefusesNumbersOutOfRange) {
  const auto answer = [](const std::function<void(TraceHeader*)>& spoil) {
    TraceHeader h = Legal();
    spoil(&h);
    TraceBytes bytes;
    PutHeader(h, &bytes);
    TraceCursor cursor(bytes.data(), bytes.size());
    const auto read = ReadHeader(&cursor);
    if (read.ok()) {
      EXPECT_TRUE(cursor.done());
      EXPECT_EQ(read->step_times, h.step_times);
      EXPECT_EQ(read->scheduler.limits.watermark, 0.01) << "a share is read back exactly";
      EXPECT_TRUE(read->can_chain);
      EXPECT_EQ(read->limits.blocks_total, h.kv.num_blocks);
    } else {
      EXPECT_EQ(read.status().code(), StatusCode::kDataLoss);
    }
    return read.status().message();
  };
  EXPECT_EQ(answer([](TraceHeader*) {}), "") << "every number at its minimum";
  EXPECT_EQ(answer([](TraceHeader* h) { h->scheduler.limits.max_num_seqs = 0; }),
            "trace header: max-num-seqs is 0, outside [1, 1048576]");
  EXPECT_EQ(answer([](TraceHeader* h) { h->scheduler.limits.pipeline_steps = 0; }),
            "trace header: pipeline-steps is 0, outside [1, 1024]");
  EXPECT_EQ(answer([](TraceHeader* h) { h->scheduler.limits.max_model_len = 1; }),
            "trace header: max-model-len is 1, outside [2, 2147483647]");
  EXPECT_EQ(answer([](TraceHeader* h) { h->scheduler.limits.slot_capacity = 0; }),
            "trace header: scheduler-slots is 0, outside [1, 1048576]");
  EXPECT_EQ(answer([](TraceHeader* h) { h->scheduler.limits.token_budget = -1; }),
            "trace header: token-budget is -1, outside [0, 1099511627776]");
  EXPECT_EQ(answer([](TraceHeader* h) { h->kv.num_blocks = 0; }),
            "trace header: kv-blocks is 0, outside [1, 16777216]");
  EXPECT_EQ(answer([](TraceHeader* h) { h->kv.num_blocks = 1 << 24; }), "");
  EXPECT_EQ(answer([](TraceHeader* h) { h->kv.num_blocks = (1 << 24) + 1; }),
            "trace header: kv-blocks is 16777217, outside [1, 16777216]");
  EXPECT_EQ(answer([](TraceHeader* h) { h->kv.block_size = 0; }),
            "trace header: block-size is 0, outside [1, 1048576]");
  EXPECT_EQ(answer([](TraceHeader* h) { h->kv.max_slots = 0; }), "trace header: kv-slots is 0, outside [1, 1048576]");
  EXPECT_EQ(answer([](TraceHeader* h) { h->kv.max_blocks_per_slot = 0; }),
            "trace header: kv-blocks-per-slot is 0, outside [1, 2147483647]");
  EXPECT_EQ(answer([](TraceHeader* h) { h->kv.swap_blocks = -1; }),
            "trace header: swap-blocks is -1, outside [0, 16777216]");
  EXPECT_EQ(answer([](TraceHeader* h) { h->slot_capacity = 0; }),
            "trace header: slot-capacity is 0, outside [1, 1048576]");
  EXPECT_EQ(answer([](TraceHeader* h) { h->max_errors_in_a_row = 0; }),
            "trace header: max-errors-in-a-row is 0, outside [1, 2147483647]");
  EXPECT_EQ(answer([](TraceHeader* h) { h->max_in_flight = 255; }), "");
  EXPECT_EQ(answer([](TraceHeader* h) { h->max_in_flight = 256; }),
            "trace header: max-in-flight is 256, outside [1, 255]");
  EXPECT_EQ(answer([](TraceHeader* h) { h->step_tile_tokens = -1; }),
            "trace header: step-tile-tokens is -1, outside [0, 1048576]");
}

// A recording of a program with other policies has its own knobs, in its own order. Missing knobs get their default.
TEST(TraceHeader, ReadsBackKnobsByName) {
  TraceHeader h = Legal();
  SchedulerLimits& limits = h.scheduler.limits;
  *limits.policy.Find<int64_t>("pia-bin") = 3;
  *limits.policy.Find<double>("larry-lambda") = 1.0 / 3;
  *limits.policy.Find<std::string>("era") = "off";
  *limits.policy.Find<bool>("pad") = true;
  limits.policy.Find<DurationText>("mlfq-promotion")->ns = -7;
  TraceBytes bytes;
  PutHeader(h, &bytes);
  const std::string text(bytes.begin(), bytes.end());
  const auto read = [](const std::string& header) {
    TraceCursor cursor(reinterpret_cast<const uint8_t*>(header.data()), header.size());
    return ReadHeader(&cursor);
  };
  const auto whole = read(text);
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  PolicyOptions policy = whole->scheduler.limits.policy;
  EXPECT_EQ(*policy.Find<int64_t>("pia-bin"), 3);
  EXPECT_EQ(*policy.Find<double>("larry-lambda"), 1.0 / 3);
  EXPECT_EQ(*policy.Find<std::string>("era"), "off");
  EXPECT_TRUE(*policy.Find<bool>("pad"));
  EXPECT_EQ(policy.Find<DurationText>("mlfq-promotion")->ns, -7);

  // Entries are a length, a name and a value.
  const auto entry_at = [&text](const char* name) { return text.find(name) - 1; };
  const size_t bin = entry_at("pia-bin"), rest = entry_at("kv-blocks"), entry = 1 + 7 + 1;
  const std::string others = text.substr(0, bin) + text.substr(bin + entry, rest - bin - entry);
  const auto moved = read(others + text.substr(bin, entry) + text.substr(rest));
  ASSERT_TRUE(moved.ok()) << moved.status().ToString();
  policy = moved->scheduler.limits.policy;
  EXPECT_EQ(*policy.Find<int64_t>("pia-bin"), 3);
  EXPECT_EQ(*policy.Find<double>("larry-lambda"), 1.0 / 3);

  const std::string retired = "\x0bmlfq-queues\x0a";  // 5
  const auto older = read(text.substr(0, bin) + retired + text.substr(bin));
  ASSERT_TRUE(older.ok()) << "a retired knob: " << older.status().ToString();
  policy = older->scheduler.limits.policy;
  EXPECT_EQ(*policy.Find<int64_t>("pia-bin"), 3);
  EXPECT_EQ(older->kv.num_blocks, h.kv.num_blocks);

  const auto without = read(others + text.substr(rest));
  ASSERT_TRUE(without.ok()) << without.status().ToString();
  policy = without->scheduler.limits.policy;
  EXPECT_EQ(*policy.Find<int64_t>("pia-bin"), 50);

  std::string unknown = text;
  unknown[bin + 1] = 'x';
  EXPECT_EQ(read(unknown).status().code(), StatusCode::kDataLoss);
  EXPECT_NE(read(unknown).status().message().find("'xia-bin'"), std::string::npos) << read(unknown).status().message();
}

TEST(TraceHeader, StoresTileAndStepTimesReadAtCreation) {
  struct Tiled final : StepTimeModel {
    explicit Tiled(int32_t t) : tile(t) {}
    DurationNs StepTimeNs(const StepShape&) const override { return 1000; }
    int32_t tile_tokens() const override { return tile; }
    const int32_t tile;
  };
  for (const auto& [tile, kept] : {std::pair{8, 8}, {1, 1}, {0, 1}}) {
    const Tiled model(tile);
    ReplicaConfig config;
    config.scheduler.limits.max_model_len = 64;
    config.scheduler.limits.blocks_total = 8;
    auto replica = Replica::Create(config, {.step_time = &model, .recorded = true});
    ASSERT_TRUE(replica.ok()) << replica.status().ToString();
    EXPECT_EQ(MakeTraceHeader(**replica, {}).step_tile_tokens, kept);
    EXPECT_TRUE((*replica)->step_times()->answers().empty()) << "they are moved out";
    auto without = Replica::Create(config, {.step_time = &model});
    EXPECT_EQ(MakeTraceHeader(**without, {}).step_tile_tokens, 0) << "no step times were recorded";
  }
}

// The scheduler reads a step-time model whose times are not recorded, so the recording could not be replayed.
TEST(RecordingDeathTest, TapWithoutRecordedStepTimesAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  struct Model final : StepTimeModel {
    DurationNs StepTimeNs(const StepShape&) const override { return 1000; }
  } model;
  ReplicaConfig config;
  config.scheduler.limits.max_model_len = 64;
  config.scheduler.limits.blocks_total = 8;
  auto replica = Replica::Create(config, {.step_time = &model});
  ASSERT_TRUE(replica.ok()) << replica.status().ToString();
  ReplicaParts parts;
  parts.tap = RecordTo("never made");
  EXPECT_DEATH((void)(*replica)->Connect(std::move(parts)), "broken invariant: !parts.tap");
}

TEST(TraceHeader, RefusesEveryTruncation) {
  TraceBytes bytes;
  PutHeader(Legal(), &bytes);
  for (size_t size = 0; size < bytes.size(); ++size) {
    // An exact heap copy, so that ASan detects reads beyond it.
    const TraceBytes cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    TraceCursor cursor(cut.data(), cut.size());
    const auto read = ReadHeader(&cursor);
    ASSERT_FALSE(read.ok()) << "accepted after " << size << " of " << bytes.size() << " bytes";
    ASSERT_EQ(read.status().code(), StatusCode::kDataLoss);
  }
}

// Recordings store these hashes, and later programs replay them: a change of the hash needs a new kTraceVersion.
TEST(PlanHash, MatchesExistingRecordings) {
  HarnessConfig config;
  config.executor.max_in_flight = 2;
  config.executor.can_chain = true;
  Harness h(config);
  h.MustSubmit(MakeRequest(Tokens(1, 3), 2));
  h.MustSubmit(MakeRequest(Tokens(2, 2), 2));
  ASSERT_EQ(h.Run(), "");
  ASSERT_EQ(h.plans(), (std::vector<std::string>{"0:0+3* 1:0+2*", "0:3+1* 1:2+1*"}));
  // Two items; the other two of the four chains keep their initial values.
  const auto items = [](uint64_t step, uint64_t first, uint64_t second) {
    uint64_t hash = MixHash(2, MixHash(step, first));
    hash = MixHash(hash, MixHash(step + 1, second));
    hash = MixHash(hash, step + 2);
    return MixHash(hash, step + 3);
  };
  constexpr uint64_t kOneRow = uint64_t{1} << 56, kSlot1 = uint64_t{1} << 40, kPosition = 1 << 20, kCount = 4,
                     kSample = 2, kChained = 1;
  uint64_t prompts = items(0, kOneRow + 3 * kCount + kSample, kOneRow + kSlot1 + 2 * kCount + kSample);
  for (const uint64_t slot : {0, 1}) prompts = MixHash(prompts, slot);        // starts
  for (const uint64_t slot : {0, 1}) prompts = MixHash(prompts, slot << 32);  // table updates, at index 0
  for (const uint64_t block : {0, 1}) prompts = MixHash(prompts, block);      // their blocks
  const uint64_t decodes = items(1, kOneRow + 3 * kPosition + kCount + kSample + kChained,
                                 kOneRow + kSlot1 + 2 * kPosition + kCount + kSample + kChained);
  EXPECT_EQ(h.loop().plan_hash(), MixHash(MixHash(0, prompts), decodes));
}

}  // namespace
}  // namespace tactus::core
