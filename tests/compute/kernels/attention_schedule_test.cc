// How attention is cut and distributed to threads, observed by a kernel that records its arguments instead of
// computing: every partition of every row once, merged in ascending order, and no memory shared by two tasks that may
// run at the same time. (In real kernels that would be an occasional data race.)
#include "compute/kernels/attention/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "compute/kernels/attention/kv_layout.h"
#include "compute/kernels/kernel_set.h"
#include "compute/kernels/kernel_testing.h"

namespace tactus::compute::attention_schedule_test {
namespace {

constexpr float kNothingYet = -1.0f;

// A row is (token, head). Records the schedule's work on it.
struct RowLog {
  int whole = 0;                    // tasks that ran all of its partitions
  std::vector<int32_t> partitions;  // run separately
  std::vector<int32_t> merged;      // in the order of merging
  int written = 0;                  // times that a merge wrote the output
};

// The kernels are plain functions: they record here.
struct Recorder {
  std::mutex mutex;
  std::map<int64_t, RowLog> rows;  // by offset of the row in the output
  int32_t wave = 0;
  bool merging = false;            // the last observed call was a merge
  std::set<const float*> carries;  // of this wave: states kept beyond their task
  int64_t split_tiles_in_two_waves = 0;
  int64_t waves_with_two_carries = 0;
  std::vector<std::string> faults;
  std::map<int32_t, int32_t> kv_heads;  // by an item's count: the most KV heads in one of its tiles
  int32_t most_members = 0;             // per tile
  int64_t shared_reads = 0;             // partitions of a KV head that a tile's members read together

  void Fault(const std::string& what) {
    if (faults.size() < 5) faults.push_back("wave " + std::to_string(wave) + ": " + what);
  }
  void NewWave() {
    if (!merging) return;
    waves_with_two_carries += carries.size() > static_cast<size_t>(carry_rows);
    merging = false;
    carries.clear();
    ++wave;
  }
  int32_t carry_rows = 0;  // rows of a tile in this scene
  int32_t most_rows = 0;   // of a tile
};
Recorder* recorder = nullptr;

bool TakesKvHeads(const AttentionCall&) {
  return true;
}

void NoteMembers(const AttentionTile& tile, int32_t first_partition, int32_t last_partition) {
  if (tile.members == nullptr) return;
  recorder->most_members = std::max(recorder->most_members, tile.queries);
  if (tile.kv_heads != 1) recorder->Fault("members beside several KV heads");
  for (int32_t i = first_partition; i <= last_partition; ++i) {
    const int32_t want = std::clamp(tile.shared - i * kPartition, 0, kPartition);
    if (SharedColumns(tile, i) != want) recorder->Fault("wrong columns are shared");
    recorder->shared_reads += want == kPartition;
  }
}

void RunTile(const AttentionCall& call, const AttentionTile& tile, const AttentionTile*, std::byte*) {
  std::lock_guard<std::mutex> lock(recorder->mutex);
  recorder->NewWave();
  recorder->most_rows = std::max(recorder->most_rows, tile.rows());
  int32_t& most = recorder->kv_heads[tile.item->count];
  most = std::max(most, tile.kv_heads);
  NoteMembers(tile, 0, QueryOf(call, tile, 0).position / kPartition);
  for (int32_t r = 0; r < tile.rows(); ++r) ++recorder->rows[AttentionRowOffset(call, tile, r, call.out_stride)].whole;
}

// A result encodes its row and partition.
void RunPartition(const AttentionCall& call, const AttentionTile& tile, int32_t index, std::byte*, float* results,
                  int64_t stride) {
  std::lock_guard<std::mutex> lock(recorder->mutex);
  recorder->NewWave();
  NoteMembers(tile, index, index);
  for (int32_t r = 0; r < tile.rows(); ++r) {
    const int64_t row = AttentionRowOffset(call, tile, r, call.out_stride);
    recorder->rows[row].partitions.push_back(index);
    results[r * stride] = static_cast<float>(row);
    results[r * stride + 1] = static_cast<float>(index);
  }
}

void Merge(const AttentionCall& call, int32_t, float* state, const float* results, int64_t stride, int32_t count,
           float* out) {
  std::lock_guard<std::mutex> lock(recorder->mutex);
  recorder->merging = true;
  const bool begins = state[call.padded] < 0;
  if (begins) {
    state[call.padded] = 1.0f;
    state[0] = results[0];
  }
  if (!begins || out == nullptr) {
    if (!recorder->carries.insert(state).second) recorder->Fault("two tiles keep their rows in one carry");
  }
  if (begins && state[1] != 0.0f) recorder->Fault("a state begins that is not empty");
  recorder->split_tiles_in_two_waves += !begins;
  const auto row = static_cast<int64_t>(state[0]);
  for (int32_t i = 0; i < count; ++i) {
    if (results[i * stride] != state[0])
      recorder->Fault("row " + std::to_string(row) + " is merged with another's results");
    recorder->rows[row].merged.push_back(static_cast<int32_t>(results[i * stride + 1]));
  }
  if (out == nullptr) return;
  ++recorder->rows[row].written;
  if (out - call.out != row)
    recorder->Fault("row " + std::to_string(row) + " is written to " + std::to_string(out - call.out));
}

struct Scene {
  int32_t heads = 4, kv_heads = 1, head_dim = 16, window = 0;
  std::vector<AttentionItem> items;  // first_position and count; the rest is filled in
  int32_t chunk = 0;
};

void Schedule(Scene scene, int32_t threads, bool kv_heads_together, Recorder* log,
              int32_t tile_rows = kAttentionTileRows) {
  recorder = log;
  int32_t tokens = 0;
  const std::vector<int32_t> table(1, 0);
  for (AttentionItem& item : scene.items) {
    item.first_token = tokens;
    item.block_table = table.data();
    tokens += item.count;
  }
  KvLayer kv{nullptr, nullptr, compute::DType::kBF16, 16, scene.kv_heads, scene.head_dim};
  std::vector<float> out(static_cast<size_t>(int64_t{tokens} * scene.heads * scene.head_dim));
  const AttentionSpec spec{.window = scene.window, .chunk = scene.chunk};
  const int64_t stride = int64_t{scene.heads} * scene.head_dim;
  log->carry_rows = scene.heads / scene.kv_heads;
  ThreadPool pool(threads, SystemClock());
  testing::OwnedWorkspace scratch(tokens, 64, scene.heads, scene.head_dim, threads);
  const AttentionKernel kernel = {
      .tile_rows = tile_rows,
      .takes_kv_heads = kv_heads_together ? TakesKvHeads : nullptr,
      .takes_members = kv_heads_together ? TakesKvHeads : nullptr,
      .run_tile = RunTile,
      .run_partition = RunPartition,
      .merge = Merge,
  };
  RunAttention(pool, kernel, nullptr, stride, scene.items, scene.heads, kv, spec, out.data(), stride, scratch.view());
}

void CheckRows(const Scene& scene, const Recorder& log, const std::string& where) {
  for (const std::string& fault : log.faults) ADD_FAILURE() << where << ": " << fault;
  int64_t token = 0;
  for (const AttentionItem& item : scene.items) {
    for (int32_t q = 0; q < item.count; ++q, ++token) {
      for (int32_t head = 0; head < scene.heads; ++head) {
        const int64_t row = (token * scene.heads + head) * scene.head_dim;
        const auto found = log.rows.find(row);
        ASSERT_NE(found, log.rows.end()) << where << ": token " << token << " head " << head << " was never computed";
        const RowLog& r = found->second;
        const int32_t position = item.first_position + q;
        const int32_t low = scene.chunk > 0    ? position / scene.chunk * scene.chunk
                            : scene.window > 0 ? std::max(0, position - scene.window + 1)
                                               : 0;
        if (r.whole > 0) {
          ASSERT_EQ(r.whole, 1) << where << ": token " << token << " head " << head << " ran twice";
          ASSERT_TRUE(r.partitions.empty())
              << where << ": token " << token << " head " << head << " ran whole and in parts";
          continue;
        }
        ASSERT_EQ(r.written, 1) << where << ": token " << token << " head " << head;
        ASSERT_TRUE(std::is_sorted(r.merged.begin(), r.merged.end()))
            << where << ": token " << token << " head " << head << " merges partitions out of order";
        std::vector<int32_t> run = r.partitions;
        std::sort(run.begin(), run.end());
        ASSERT_EQ(run, r.merged) << where << ": token " << token << " head " << head
                                 << ": the partitions that ran were not the merged ones";
        ASSERT_EQ(std::adjacent_find(run.begin(), run.end()), run.end()) << where << ": a partition ran twice";
        // All partitions of the row; more where another row of its tile attends to more.
        ASSERT_LE(run.front(), low / kPartition) << where << ": token " << token << " misses its first partition";
        ASSERT_GE(run.back(), position / kPartition) << where << ": token " << token << " misses its last partition";
        ASSERT_EQ(run.back() - run.front() + 1, static_cast<int32_t>(run.size()))
            << where << ": a partition is missing";
      }
    }
  }
}

// Each decode has far more partitions than the scratch holds per wave, and the second begins in the wave in which the
// first ends: both are carried over a wave's end, so each needs separate rows.
TEST(AttentionSchedule, DecodesCutOverSeveralWavesShareNoCarry) {
  for (const int32_t threads : {2, 3, 5}) {
    Scene scene;
    const int32_t rows_per_wave = kSplitPerThread * threads * kAttentionTileRows;
    const int32_t partitions = rows_per_wave / scene.heads * 5 / 2;  // two and a half waves
    scene.items = {{0, partitions * kPartition - 1, 1, nullptr}, {0, partitions * kPartition - 1, 1, nullptr}};
    Recorder log;
    Schedule(scene, threads, false, &log);
    const std::string where = std::to_string(threads) + " threads";
    CheckRows(scene, log, where);
    EXPECT_GE(log.split_tiles_in_two_waves, 2 * 2 * scene.heads)
        << where << ": the test needs two tiles over three waves each";
    EXPECT_GE(log.waves_with_two_carries, 1) << where << ": the test needs a wave in which both run";
  }
}

TEST(AttentionSchedule, EveryRowIsComputedOnceInAnyMix) {
  const int32_t p = kPartition;
  std::vector<Scene> scenes;
  for (const auto& [heads, kv_heads] : {std::pair(4, 1), {9, 3}, {8, 8}, {72, 1}, {6, 2}, {40, 20}}) {
    for (const auto& [window, chunk] : {std::pair(0, 0), {5, 0}, {p, 0}, {p + 1, 0}, {3 * p, 0}, {0, 5}, {0, p + 1}}) {
      Scene s{heads, kv_heads, 16, window, {}, chunk};
      s.items = {{0, 20 * p, 1, nullptr},
                 {0, 0, 40, nullptr},
                 {0, p - 1, 1, nullptr},
                 {0, p, 1, nullptr},
                 {0, 7 * p - 3, 9, nullptr}};
      scenes.push_back(s);
      s.items = {{0, 40 * p - 30, 61, nullptr}};
      scenes.push_back(s);
      s.items = {{0, 0, 1, nullptr}};
      scenes.push_back(s);
      s.items = {{0, 30 * p, 33, nullptr}, {0, 29 * p + 1, 2, nullptr}, {0, 28 * p, 1, nullptr}};
      scenes.push_back(s);
    }
  }
  Scene many;  // enough narrow items for tiles with several KV heads
  many.heads = 16;
  many.kv_heads = 8;
  for (int32_t i = 0; i < 40; ++i) many.items.push_back({0, i * 37, 1 + i % 3, nullptr});
  scenes.push_back(many);
  for (size_t i = 0; i < scenes.size(); ++i) {
    for (const int32_t threads : {1, 2, 5}) {
      for (const bool together : {false, true}) {
        for (const int32_t tile_rows : {kAttentionTileRows, kMostTileRows}) {
          Recorder log;
          Schedule(scenes[i], threads, together, &log, tile_rows);
          CheckRows(scenes[i], log,
                    "scene " + std::to_string(i) + ", " + std::to_string(threads) + " threads, tiles of " +
                        std::to_string(tile_rows) + " rows");
          if (HasFailure()) return;
        }
      }
    }
  }
}

// A long prompt's tiles have as many rows as the kernel takes, and fewer where threads would have too few tiles.
TEST(AttentionSchedule, TilesShrinkForManyThreads) {
  const Scene scene{8, 2, 16, 0, {{0, 1000, 512, nullptr}}};
  for (const auto& [threads, rows] : {std::pair(1, 256), {2, 256}, {3, 128}, {4, 128}, {5, 64}, {8, 64}}) {
    Recorder log;
    Schedule(scene, threads, false, &log, kMostTileRows);
    EXPECT_EQ(log.most_rows, rows) << threads << " threads";
    CheckRows(scene, log, std::to_string(threads) + " threads");
  }
}

// A single long decode would leave all threads but one idle; beside enough others it need not be split.
TEST(AttentionSchedule, OnlyTilesThatWouldDelayTheStepAreSplit) {
  const auto split_rows = [](const Scene& scene, int32_t threads) {
    Recorder log;
    Schedule(scene, threads, false, &log);
    return std::count_if(log.rows.begin(), log.rows.end(),
                         [](const auto& row) { return !row.second.partitions.empty(); });
  };
  Scene alone;
  alone.items = {{0, 20 * kPartition, 1, nullptr}};
  EXPECT_EQ(split_rows(alone, 1), 0) << "one thread has nothing to share";
  EXPECT_EQ(split_rows(alone, 2), alone.heads);
  Scene brief;
  brief.items = {{0, kPartition - 1, 1, nullptr}};
  EXPECT_EQ(split_rows(brief, 2), 0) << "one partition cannot be split";
  brief.items[0].first_position = kPartition;
  EXPECT_EQ(split_rows(brief, 2), brief.heads) << "two partitions can";
  Scene equal;  // a decode is split if its cost exceeds 1 / (2 threads) of the total
  for (int i = 0; i < 4; ++i) equal.items.push_back({0, 20 * kPartition, 1, nullptr});
  EXPECT_EQ(split_rows(equal, 2), 0) << "a quarter each is not more than a quarter";
  equal.items.pop_back();
  EXPECT_EQ(split_rows(equal, 2), 3 * equal.heads) << "a third each is";
}

// Sixteen KV heads, one thread and enough items: sixteen rows may share a tile with other KV heads, seventeen may not;
// a tile has at most 64 rows, and for a long context a tile reads at most 8 MiB.
TEST(AttentionSchedule, TilesHoldAsManyKvHeadsAsTheyMay) {
  Scene scene;
  scene.heads = scene.kv_heads = 16;
  for (int i = 0; i < 8; ++i) scene.items.push_back({0, 100, 16, nullptr});
  scene.items.push_back({0, 100, 17, nullptr});
  scene.items.push_back({0, 100, 4, nullptr});
  scene.items.push_back({0, 100, 5, nullptr});
  scene.items.push_back({0, 16 * 4096 - 1, 1, nullptr});  // 4,096 blocks of 1 KiB for each head's K and V
  Recorder log;
  Schedule(scene, 1, true, &log);
  CheckRows(scene, log, "narrow items");
  EXPECT_EQ(log.kv_heads[16], 4);
  EXPECT_EQ(log.kv_heads[17], 1);
  EXPECT_EQ(log.kv_heads[4], 16);
  EXPECT_EQ(log.kv_heads[5], 8) << "twelve fit; two tiles of eight are as few and as even";
  EXPECT_EQ(log.kv_heads[1], 2);
  Recorder apart;
  Schedule(scene, 1, false, &apart);
  EXPECT_EQ(apart.kv_heads[4], 1) << "kernels without several KV heads";
}

// Decodes of one prefix group form tiles of up to 64 rows, evenly; each tile reads a partition of the prefix once.
TEST(AttentionSchedule, AGroupReadsItsPrefixOncePerTile) {
  Scene scene;
  scene.heads = 9;
  scene.kv_heads = 3;
  for (int32_t i = 0; i < 50; ++i) {
    scene.items.push_back({0, 4 * kPartition + 100 + i, 1, nullptr, i % 2 == 0 ? 3 : -1, 4 * kPartition + 70});
  }
  scene.items.push_back({0, 0, 40, nullptr});
  for (const int32_t threads : {1, 2, 5}) {
    Recorder log;
    Schedule(scene, threads, true, &log);
    CheckRows(scene, log, std::to_string(threads) + " threads");
    EXPECT_EQ(log.most_members, 13) << "25 members of three rows each are two tiles";
    EXPECT_EQ(log.shared_reads, 3 * 2 * 4) << threads << " threads: three KV heads, two tiles, four partitions";
  }
  Recorder alone;  // a kernel without members
  Schedule(scene, 2, false, &alone);
  CheckRows(scene, alone, "kernels that take no members");
  EXPECT_EQ(alone.most_members, 0);
}

// A few long decodes would be one task: they are split by partitions, like a single long decode.
TEST(AttentionSchedule, AGroupThatWouldDelayTheStepIsSplit) {
  Scene scene;
  for (int32_t i = 0; i < 3; ++i) scene.items.push_back({0, 20 * kPartition + 9, 1, nullptr, 0, 20 * kPartition});
  Recorder log;
  Schedule(scene, 2, true, &log);
  CheckRows(scene, log, "split");
  EXPECT_EQ(log.shared_reads, 20);
  for (const auto& [row, r] : log.rows) EXPECT_EQ(r.partitions.size(), 21u) << "row at " << row;
}

// Nothing is shared if a window or a chunk cuts the prefix, a group has one sequence, an item has several queries, a
// sequence ends before a key tile does, or the query heads of a KV head fill whole tiles.
TEST(AttentionSchedule, GroupsWithoutSharedPositionsRunAsItems) {
  const auto members = [](const Scene& scene) {
    Recorder log;
    Schedule(scene, 2, true, &log);
    CheckRows(scene, log, "ungrouped");
    return log.most_members;
  };
  Scene scene;
  scene.items = {{0, 700, 1, nullptr, 0, 640}, {0, 650, 1, nullptr, 0, 640}};
  EXPECT_EQ(members(scene), 2);
  scene.window = 680;
  EXPECT_EQ(members(scene), 0) << "a window shorter than one of them";
  scene.window = 701;
  EXPECT_EQ(members(scene), 2) << "a window that holds both";
  scene.window = 0;
  scene.chunk = 680;
  EXPECT_EQ(members(scene), 0) << "a chunk that one of them has left";
  scene.chunk = 701;
  EXPECT_EQ(members(scene), 2) << "a chunk that holds both";
  scene.chunk = 0;
  scene.items[1].prefix_group = 1;
  EXPECT_EQ(members(scene), 0) << "a sequence each";
  scene.items[1].prefix_group = 0;
  scene.items[1].count = 2;
  EXPECT_EQ(members(scene), 0) << "two queries";
  scene.items[1] = {0, 62, 1, nullptr, 0, 640};
  EXPECT_EQ(members(scene), 0) << "63 positions in common";
  scene.items[1] = {0, 63, 1, nullptr, 0, 640};
  EXPECT_EQ(members(scene), 2) << "64 positions in common";
  scene.heads = 17;
  EXPECT_EQ(members(scene), 0) << "17 rows of one sequence";
}

TEST(AttentionSchedule, WindowsBeginAtTheirFirstVisiblePosition) {
  AttentionCall call{};
  AttentionSpec spec;
  call.spec = &spec;
  EXPECT_EQ(VisibleFrom(call, 100).low, 0);
  spec.window = 10;
  EXPECT_EQ(VisibleFrom(call, 8).low, 0);
  EXPECT_EQ(VisibleFrom(call, 9).low, 0);
  EXPECT_EQ(VisibleFrom(call, 10).low, 1) << "ten positions, its own included";
  EXPECT_EQ(VisibleFrom(call, 99).low, 90);
  EXPECT_EQ(VisibleFrom(call, 99).high, 99);
}

TEST(AttentionSchedule, ChunksBeginAtMultiplesOfTheirSize) {
  AttentionCall call{};
  const AttentionSpec spec{.chunk = 10};
  call.spec = &spec;
  EXPECT_EQ(VisibleFrom(call, 0).low, 0);
  EXPECT_EQ(VisibleFrom(call, 9).low, 0);
  EXPECT_EQ(VisibleFrom(call, 10).low, 10) << "the first of a chunk sees itself alone";
  EXPECT_EQ(VisibleFrom(call, 19).low, 10);
  EXPECT_EQ(VisibleFrom(call, 19).high, 19);
  EXPECT_FALSE(spec.sees_all());
}

}  // namespace
}  // namespace tactus::compute::attention_schedule_test
