// The lists for FlashInfer's kernels, a pure function, read as those kernels read them, and which models are refused.
// Kernels' tests compute with such lists (kernels/flashinfer_test.cc).
#include "compute/cuda/flashinfer_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tactus::compute::cuda {
namespace {

constexpr int32_t kBlock = 16, kTable = 1000;  // entries of an item's block table

FlashInferShape FlashShape(int32_t heads, int32_t kv_heads, bool batch_invariant, int32_t multiprocessors = 16) {
  return {.heads = heads,
          .kv_heads = kv_heads,
          .head_dim = 128,
          .block_size = kBlock,
          .multiprocessors = multiprocessors,
          .batch_invariant = batch_invariant,
          .max_partials = 1 << 20};
}

// Items of (first position, queries), with a table each.
std::vector<AttentionRow> ItemsOf(const std::vector<std::pair<int32_t, int32_t>>& items) {
  std::vector<AttentionRow> rows;
  int32_t tokens = 0;
  for (const auto& [first, count] : items) {
    rows.push_back({.first_token = tokens,
                    .first_position = first,
                    .count = count,
                    .table = static_cast<int32_t>(rows.size()) * kTable});
    tokens += count;
  }
  return rows;
}
std::vector<BlockId> TablesOf(size_t items) {
  std::vector<BlockId> tables(items * kTable);
  for (size_t i = 0; i < tables.size(); ++i) tables[i] = static_cast<BlockId>(i * 7 % 100003);
  return tables;
}

FlashInferPlan PlanOf(const std::vector<AttentionRow>& rows, const FlashInferShape& shape) {
  FlashInferPlan plan;
  PlanFlashInfer(rows, TablesOf(rows.size()), shape, &plan);
  return plan;
}

// Reads a plan as FlashInfer does, and notes what is computed for each q row of an item, and where it goes.
class FlashInferReader {
 public:
  FlashInferReader(const std::vector<AttentionRow>& rows, const FlashInferShape& shape, const FlashInferPlan& plan)
      : rows_(rows), group_(shape.heads / shape.kv_heads), plan_(plan) {
    CheckItems(shape);
    Read(plan.decodes);
    Read(plan.chunks);
  }

  // Every q row sees each position up to its own once, and what a merge adds are the row's parts in ascending order.
  void Check() const {
    for (size_t i = 0; i < rows_.size(); ++i) {
      const AttentionRow& row = rows_[i];
      for (int32_t r = 0; r < row.count * group_; ++r) {
        const auto at = parts_.find({static_cast<int32_t>(i), r});
        ASSERT_NE(at, parts_.end()) << "no unit has q row " << r << " of item " << i;
        const int32_t token = row.first_token + r / group_, position = row.first_position + r / group_;
        CheckRow(at->second, token, position);
        ASSERT_FALSE(testing::Test::HasFatalFailure()) << "item " << i << ", q row " << r;
      }
    }
  }

 private:
  struct Part {
    int32_t begin, end;  // positions
    bool split;
    int64_t place;  // token, or partial result
  };

  void CheckItems(const FlashInferShape& shape) {
    const std::vector<BlockId> tables = TablesOf(rows_.size());
    ASSERT_EQ(plan_.first_token.size(), rows_.size() + 1);
    ASSERT_EQ(plan_.first_page.size(), rows_.size() + 1);
    for (size_t i = 0; i < rows_.size(); ++i) {
      const AttentionRow& row = rows_[i];
      EXPECT_EQ(plan_.first_token[i], row.first_token);
      EXPECT_EQ(plan_.first_token[i + 1] - plan_.first_token[i], row.count);
      EXPECT_EQ(Positions(static_cast<int32_t>(i)), row.first_position + row.count) << "item " << i;
      EXPECT_GE(plan_.last_page_tokens[i], 1);
      EXPECT_LE(plan_.last_page_tokens[i], shape.block_size);
      for (int32_t p = plan_.first_page[i]; p < plan_.first_page[i + 1]; ++p) {
        const auto page = static_cast<size_t>(p - plan_.first_page[i]);
        ASSERT_EQ(plan_.pages[static_cast<size_t>(p)], tables[static_cast<size_t>(row.table) + page])
            << "page " << page << " of item " << i;
      }
    }
  }
  int32_t Positions(int32_t item) const {
    const auto i = static_cast<size_t>(item);
    return (plan_.first_page[i + 1] - plan_.first_page[i] - 1) * kBlock + plan_.last_page_tokens[i];
  }

  void Read(const FlashInferPlan::Units& units) {
    const int32_t chunk = plan_.kv_chunk[0];
    for (size_t u = 0; u < units.items.size(); ++u) {
      if (units.valid[u] == 0) continue;
      const int32_t item = units.items[u], positions = Positions(item), kv_tile = units.kv_tiles[u];
      const AttentionRow& row = rows_[static_cast<size_t>(item)];
      const bool decode = units.tile_rows == 0;
      const int32_t tile_rows = decode ? group_ : units.tile_rows, first = units.q_tiles[u] * tile_rows;
      EXPECT_LT(first, row.count * group_) << "unit " << u << " has no rows";
      EXPECT_TRUE(units.split || kv_tile == 0);
      for (int32_t r = first; r < std::min(first + tile_rows, row.count * group_); ++r) {
        const int32_t query = r / group_;
        Part part{0, positions, units.split, row.first_token + query};
        if (units.split) {
          part.begin = kv_tile * chunk;
          part.end = std::min((kv_tile + 1) * chunk, positions);
          const int32_t chunks = (positions + chunk - 1) / chunk;
          part.place = plan_.first_partial[static_cast<size_t>(item)] + query * chunks + kv_tile;
        }
        // The decode kernel takes the item as its token, and writes result `u`.
        if (decode) {
          EXPECT_EQ(row.first_token, item);
          EXPECT_EQ(part.place, static_cast<int64_t>(u));
        }
        part.end = std::min(part.end, positions - row.count + query + 1);
        parts_[{item, r}].push_back(part);
      }
    }
  }

  void CheckRow(std::vector<Part> parts, int32_t token, int32_t position) const {
    std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.begin < b.begin; });
    int32_t next = 0;
    for (const Part& part : parts) {
      if (part.begin >= part.end) continue;
      ASSERT_EQ(part.begin, next) << "positions are left out, or computed twice";
      next = part.end;
    }
    ASSERT_EQ(next, position + 1);
    const auto t = static_cast<size_t>(token);
    if (!parts[0].split) {
      ASSERT_EQ(parts.size(), 1u);
      ASSERT_EQ(parts[0].place, token);
      if (plan_.first_of_token.empty()) return;
      ASSERT_EQ(plan_.first_of_token[t + 1], plan_.first_of_token[t]) << "a merge would add what no unit computes";
      return;
    }
    ASSERT_EQ(std::ssize(parts), plan_.first_of_token[t + 1] - plan_.first_of_token[t]);
    for (size_t i = 0; i < parts.size(); ++i) {
      ASSERT_EQ(parts[i].place, plan_.first_of_token[t] + static_cast<int64_t>(i)) << "part " << i;
    }
  }

  const std::vector<AttentionRow>& rows_;
  const int32_t group_;
  const FlashInferPlan& plan_;
  std::map<std::pair<int32_t, int32_t>, std::vector<Part>> parts_;  // by item and q row
};

TEST(FlashInferPlan, EveryQueryReadsEachOfItsPositionsOnce) {
  std::mt19937 random(1);
  for (int32_t batch = 0; batch < 16; ++batch) {
    std::vector<std::pair<int32_t, int32_t>> items;
    const bool decodes = batch % 2 == 0;
    for (uint32_t i = 0; i <= random() % 12; ++i) {
      const auto first = static_cast<int32_t>(random() % (batch % 3 == 0 ? 9000 : 600));
      items.emplace_back(first, decodes || random() % 2 == 0 ? 1 : static_cast<int32_t>(random() % 200) + 1);
    }
    const auto rows = ItemsOf(items);
    for (const int32_t heads : {1, 4, 8, 16, 24}) {
      for (const bool batch_invariant : {true, false}) {
        const FlashInferShape shape = FlashShape(heads * 2, 2, batch_invariant);
        SCOPED_TRACE("batch " + std::to_string(batch) + ", group " + std::to_string(heads));
        FlashInferPlan plan = PlanOf(rows, shape);
        FlashInferReader(rows, shape, plan).Check();
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(FlashInferPlan, WithBatchInvarianceAnItemsUnitsFollowFromItAlone) {
  const FlashInferShape shape = FlashShape(8, 2, true, 132);
  const auto units_of = [&](const std::vector<std::pair<int32_t, int32_t>>& items, int32_t item) {
    const FlashInferPlan plan = PlanOf(ItemsOf(items), shape);
    EXPECT_EQ(plan.decodes.items.size(), 0u) << "a decode has another form than chunks";
    EXPECT_EQ(plan.chunks.tile_rows, 64);
    EXPECT_FALSE(plan.chunks.split);
    std::vector<std::pair<int32_t, int32_t>> units;
    for (size_t u = 0; u < plan.chunks.items.size(); ++u) {
      if (plan.chunks.items[u] == item) units.emplace_back(plan.chunks.q_tiles[u], plan.chunks.kv_tiles[u]);
    }
    return units;
  };
  const auto alone = units_of({{9000, 1}}, 0);
  EXPECT_EQ(alone.size(), 1u);
  EXPECT_EQ(units_of({{0, 700}, {9000, 1}, {30, 1}}, 1), alone);
  EXPECT_EQ(units_of({{100, 50}}, 0), units_of({{100, 50}, {0, 500}}, 0));
}

TEST(FlashInferPlan, FewLongDecodesAreCutForTheWholeDevice) {
  const FlashInferShape shape = FlashShape(8, 2, false);  // 16 multiprocessors: 16 units of each KV head at once
  const FlashInferPlan one = PlanOf(ItemsOf({{8191, 1}}), shape);
  EXPECT_TRUE(one.decodes.split);
  EXPECT_EQ(one.kv_chunk[0], 512);
  EXPECT_EQ(one.decodes.items.size(), 16u);
  const FlashInferPlan many = PlanOf(ItemsOf(std::vector<std::pair<int32_t, int32_t>>(32, {1023, 1})), shape);
  EXPECT_FALSE(many.decodes.split);
  EXPECT_EQ(many.decodes.items.size(), 32u);
  EXPECT_TRUE(many.first_of_token.empty());
}

TEST(FlashInferPlan, PartialResultsFitTheirMemory) {
  FlashInferShape shape = FlashShape(8, 2, false, 132);
  const auto rows = ItemsOf({{8191, 1}, {4000, 2}, {100, 1}});
  for (const int64_t most : {40, 10, 4, 3, 0}) {
    shape.max_partials = most;
    const FlashInferPlan plan = PlanOf(rows, shape);
    EXPECT_LE(plan.decodes.split ? plan.first_partial.back() : 0, most);
    EXPECT_EQ(plan.decodes.split, most > 4) << most;  // two chunks of the longest, and one of each other query
    FlashInferReader(rows, shape, plan).Check();
  }
}

TEST(FlashInferPlan, FormsFollowFromTheBatchWhereThatIsAllowed) {
  const auto forms = [](const std::vector<std::pair<int32_t, int32_t>>& items, int32_t group, int32_t head_dim) {
    FlashInferShape shape = FlashShape(group, 1, false);
    shape.head_dim = head_dim;
    const FlashInferPlan plan = PlanOf(ItemsOf(items), shape);
    return std::pair(plan.decodes.items.empty() ? -1 : plan.decodes.tile_rows,
                     plan.chunks.items.empty() ? -1 : plan.chunks.tile_rows);
  };
  EXPECT_EQ(forms({{10, 1}, {20, 1}}, 4, 128), std::pair(0, -1)) << "decodes alone: the decode kernel";
  EXPECT_EQ(forms({{10, 1}, {20, 1}}, 8, 128), std::pair(16, -1)) << "a large group: matrix units";
  EXPECT_EQ(forms({{10, 1}, {20, 3}}, 4, 128), std::pair(16, -1)) << "a draft";
  EXPECT_EQ(forms({{10, 1}, {20, 16}}, 4, 128), std::pair(16, 64));
  EXPECT_EQ(forms({{10, 1}, {20, 17}}, 4, 128), std::pair(16, 128)) << "more rows than a tile of 64";
  EXPECT_EQ(forms({{10, 1}, {20, 500}}, 4, 256), std::pair(16, 64)) << "no tile of 128 rows of 256 values";
  EXPECT_EQ(forms({{10, 1}}, 24, 128), std::pair(-1, 64)) << "a group larger than a tile of decodes";
}

TEST(FlashInferPlan, PaddedListsServeOtherSteps) {
  for (const bool batch_invariant : {true, false}) {
    const FlashInferShape shape = FlashShape(8, 2, batch_invariant);
    const auto padded = [&](int32_t decodes, int32_t tokens) {
      const auto rows = ItemsOf(std::vector<std::pair<int32_t, int32_t>>(static_cast<size_t>(decodes), {tokens, 1}));
      FlashInferPlan plan = PlanOf(rows, shape);
      const size_t units = plan.decodes.items.size() + plan.chunks.items.size();
      PadFlashInferPlan(12, &plan);
      size_t valid = 0;
      for (const auto* list : {&plan.decodes, &plan.chunks}) {
        for (const uint8_t v : list->valid) valid += v;
      }
      EXPECT_EQ(valid, units) << "a unit was added or lost";
      for (size_t i = rows.size(); i < 12; ++i) {
        EXPECT_EQ(plan.first_token[i + 1], plan.first_token[i]) << "an item that pads the step has queries";
        EXPECT_EQ(plan.first_page[i + 1], plan.first_page[i]) << "an item that pads the step has pages";
      }
      return std::vector<size_t>{plan.first_token.size(),   plan.first_page.size(),     plan.pages.size(),
                                 plan.first_partial.size(), plan.first_of_token.size(), plan.last_page_tokens.size(),
                                 plan.decodes.items.size(), plan.chunks.items.size()};
    };
    EXPECT_EQ(padded(9, 1000), padded(12, 1010));
    if (batch_invariant) continue;
    constexpr size_t kPartials = 3;
    EXPECT_NE(padded(1, 8000)[kPartials], padded(12, 100)[kPartials]) << "one graph would serve steps with splits too";
  }
}

ModelConfig OneLayer() {
  AttentionBlock a;
  a.heads = 8;
  a.kv_heads = 2;
  a.head_dim = 128;
  ModelConfig config;
  config.layers.emplace_back().emplace_back().block = a;
  return config;
}

constexpr FlashInferUse kServed{.built = true};

TEST(FlashInferUse, RefusalsNameTheValueAndWhatToUse) {
  EXPECT_TRUE(CheckFlashInfer(OneLayer(), kServed).ok());
  EXPECT_TRUE(CheckFlashInfer(OneLayer(), {.type = Real::kF16, .kv_type = KvType::kF16, .built = true}).ok());
  const auto refused = [](const ModelConfig& config, const FlashInferUse& use, const std::string& words) {
    const Status status = CheckFlashInfer(config, use);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << words;
    EXPECT_EQ(status.param(), "attention-backend");
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("--attention-backend tactus"), std::string::npos) << status.message();
  };
  refused(OneLayer(), {.built = false}, "-DTACTUS_FLASHINFER=ON");
  refused(OneLayer(), {.type = Real::kF32, .kv_type = KvType::kF32, .built = true}, "--dtype float32");
  for (const KvType kv_type : {KvType::kF32, KvType::kF16, KvType::kInt8, KvType::kFp8}) {
    refused(OneLayer(), {.kv_type = kv_type, .built = true}, "--kv-cache-dtype auto");
  }
  refused(OneLayer(), {.overlap = true, .built = true}, "--overlap nano");
  const auto with = [&](const char* words, auto change) {
    ModelConfig config = OneLayer();
    change(std::get<AttentionBlock>(config.layers[0][0].block));
    refused(config, kServed, words);
  };
  with("heads of 96 values", [](AttentionBlock& a) { a.head_dim = 96; });
  with("windows of 4096 tokens", [](AttentionBlock& a) { a.window = 4096; });
  with("chunks of 8192 tokens", [](AttentionBlock& a) { a.chunk = 8192; });
  with("capped at 50", [](AttentionBlock& a) { a.softcap = 50.0f; });
  with("ALiBi", [](AttentionBlock& a) { a.alibi = 1.0f; });
  with("attention sinks", [](AttentionBlock& a) { a.sinks = true; });
}

TEST(FlashInferUse, PositionsOfAStepFit32Bits) {
  EXPECT_TRUE(CheckFlashInferSize(256, 131072, 16).ok());
  const Status status = CheckFlashInferSize(4096, 1 << 20, 16);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("--max-num-seqs 4096"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace tactus::compute::cuda
