#include "compute/cuda/flashinfer_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace tactus::compute::cuda {
namespace {

constexpr int32_t kInvariantRows = 64, kFewRows = 16, kManyRows = 128;  // of tiles
// FlashInfer's decode kernel reads K and V for its 4 warps' rows without matrix units; larger groups are faster by
// these.
constexpr int32_t kMostDecodeGroup = 4;
constexpr int64_t kUnitsEach = 2;         // for each multiprocessor, as attention_plan.cc's
constexpr int64_t kLeastKvChunk = 256;    // positions; also what a chunk's length is a multiple of
constexpr int32_t kWholeKv = 1 << 30;     // a chunk of all positions
constexpr size_t kLeastListEntries = 32;  // of a padded list; fewer take as long

int64_t RoundedUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
int32_t Positions(const AttentionRow& row) {
  return row.first_position + row.count;
}

class FlashInferPlanner {
 public:
  FlashInferPlanner(std::span<const AttentionRow> rows, std::span<const BlockId> tables, const FlashInferShape& shape,
                    FlashInferPlan* plan)
      : rows_(rows), tables_(tables), shape_(shape), group_(shape.heads / shape.kv_heads), plan_(*plan) {}

  void Run() {
    PlaceItems();
    ChooseForms();
    ChooseKvChunk();
    PlacePartials();
    for (FlashInferPlan::Units* const units : {&plan_.decodes, &plan_.chunks}) {
      units->items.clear();
      units->q_tiles.clear();
      units->kv_tiles.clear();
    }
    for (size_t i = 0; i < rows_.size(); ++i) EmitUnits(i);
    for (FlashInferPlan::Units* const units : {&plan_.decodes, &plan_.chunks}) {
      units->valid.assign(units->items.size(), 1);
    }
  }

 private:
  int32_t QRows(const AttentionRow& row) const { return row.count * group_; }
  bool IsDecode(const AttentionRow& row) const { return !shape_.batch_invariant && QRows(row) <= kFewRows; }
  int32_t ChunksOf(const AttentionRow& row) const {
    return IsDecode(row) ? (Positions(row) + plan_.kv_chunk[0] - 1) / plan_.kv_chunk[0] : 1;
  }

  void PlaceItems() {
    plan_.first_token.assign(1, 0);
    plan_.first_page.assign(1, 0);
    plan_.pages.clear();
    plan_.last_page_tokens.clear();
    for (const AttentionRow& row : rows_) {
      const int32_t pages = (Positions(row) + shape_.block_size - 1) / shape_.block_size;
      const auto table = tables_.subspan(static_cast<size_t>(row.table), static_cast<size_t>(pages));
      plan_.pages.insert(plan_.pages.end(), table.begin(), table.end());
      plan_.first_token.push_back(row.first_token + row.count);
      plan_.first_page.push_back(static_cast<int32_t>(plan_.pages.size()));
      plan_.last_page_tokens.push_back(Positions(row) - (pages - 1) * shape_.block_size);
    }
  }

  void ChooseForms() {
    int32_t longest = 0;
    bool only_decodes = true;
    for (const AttentionRow& row : rows_) {
      longest = std::max(longest, QRows(row));
      only_decodes = only_decodes && row.count == 1;
    }
    plan_.decodes.tile_rows = only_decodes && group_ <= kMostDecodeGroup ? 0 : kFewRows;
    const bool many = !shape_.batch_invariant && longest > kInvariantRows && shape_.head_dim < 256;
    plan_.chunks.tile_rows = many ? kManyRows : kInvariantRows;
  }

  // The shortest chunk with which the decodes' units all run at once.
  void ChooseKvChunk() {
    int64_t positions = 0, longest = 0;
    for (const AttentionRow& row : rows_) {
      if (!IsDecode(row)) continue;
      positions += Positions(row);
      longest = std::max<int64_t>(longest, Positions(row));
    }
    const int64_t units = std::max<int64_t>(1, kUnitsEach * shape_.multiprocessors / shape_.kv_heads);
    int64_t chunk = std::max(kLeastKvChunk, RoundedUp((positions + units - 1) / units, kLeastKvChunk));
    const auto partials = [&] {
      int64_t sum = 0;
      for (const AttentionRow& row : rows_) {
        if (IsDecode(row)) sum += row.count * ((Positions(row) + chunk - 1) / chunk);
      }
      return sum;
    };
    while (chunk < longest && partials() > shape_.max_partials) chunk *= 2;
    plan_.decodes.split = chunk < longest;
    plan_.chunks.split = false;
    plan_.kv_chunk.assign(1, plan_.decodes.split ? static_cast<int32_t>(chunk) : kWholeKv);
  }

  void PlacePartials() {
    plan_.first_partial.clear();
    plan_.first_of_token.clear();
    if (!plan_.decodes.split) return;
    int32_t next = 0;
    plan_.first_partial.push_back(next);
    plan_.first_of_token.push_back(next);
    for (const AttentionRow& row : rows_) {
      for (int32_t query = 0; query < row.count; ++query) {
        next += IsDecode(row) ? ChunksOf(row) : 0;
        plan_.first_of_token.push_back(next);
      }
      plan_.first_partial.push_back(next);
    }
  }

  void EmitUnits(size_t item) {
    const AttentionRow& row = rows_[item];
    FlashInferPlan::Units& units = IsDecode(row) ? plan_.decodes : plan_.chunks;
    const int32_t tile_rows = units.tile_rows == 0 ? QRows(row) : units.tile_rows;
    for (int32_t tile = 0; tile * tile_rows < QRows(row); ++tile) {
      for (int32_t chunk = 0; chunk < ChunksOf(row); ++chunk) {
        units.items.push_back(static_cast<int32_t>(item));
        units.q_tiles.push_back(tile);
        units.kv_tiles.push_back(chunk);
      }
    }
  }

  const std::span<const AttentionRow> rows_;
  const std::span<const BlockId> tables_;
  const FlashInferShape& shape_;
  const int32_t group_;
  FlashInferPlan& plan_;
};

// The first thing in the model that FlashInfer's kernels, as we compile them, do not have.
Status CheckLayer(const AttentionBlock& a) {
  const auto refuse = [](const std::string& has, const char* serves) {
    return InvalidArgument(
        fmt::format("--attention-backend flashinfer is not possible: the model has {}, and FlashInfer's kernels are "
                    "built for {}; use --attention-backend tactus",
                    has, serves),
        "attention-backend");
  };
  if (a.head_dim != 64 && a.head_dim != 128 && a.head_dim != 256) {
    return refuse(fmt::format("heads of {} values", a.head_dim), "64, 128 and 256");
  }
  if (a.window > 0) return refuse(fmt::format("attention windows of {} tokens", a.window), "whole contexts");
  if (a.chunk > 0) return refuse(fmt::format("attention in chunks of {} tokens", a.chunk), "whole contexts");
  if (a.softcap > 0.0f) return refuse(fmt::format("attention scores capped at {}", a.softcap), "scores without a cap");
  if (a.alibi != 0.0f) return refuse("ALiBi", "scores without a bias");
  if (a.sinks) return refuse("attention sinks", "attention without them");
  return Status();
}

}  // namespace

void PlanFlashInfer(std::span<const AttentionRow> rows, std::span<const BlockId> tables, const FlashInferShape& shape,
                    FlashInferPlan* plan) {
  FlashInferPlanner(rows, tables, shape, plan).Run();
}

void PadFlashInferPlan(int64_t items, FlashInferPlan* plan) {
  const auto n = static_cast<size_t>(items);
  for (std::vector<int32_t>* const list : {&plan->first_token, &plan->first_page}) list->resize(n + 1, list->back());
  plan->last_page_tokens.resize(n, 0);
  for (std::vector<int32_t>* const list : {&plan->first_partial, &plan->first_of_token}) {
    if (!list->empty()) list->resize(n + 1, list->back());
  }
  const auto rounded = [](size_t size) { return size == 0 ? 0 : std::max(kLeastListEntries, std::bit_ceil(size)); };
  plan->pages.resize(rounded(plan->pages.size()), 0);
  for (FlashInferPlan::Units* const units : {&plan->decodes, &plan->chunks}) {
    const size_t size = rounded(units->items.size());
    for (std::vector<int32_t>* const list : {&units->items, &units->q_tiles, &units->kv_tiles}) list->resize(size, 0);
    units->valid.resize(size, 0);
  }
}

Status CheckFlashInfer(const ModelConfig& config, const FlashInferUse& use) {
  constexpr const char* kFlag = "attention-backend";
  if (!use.built) {
    return InvalidArgument(
        "--attention-backend flashinfer is not possible: this library of the CUDA backend was built without "
        "FlashInfer's headers; run `scripts/setup.sh flashinfer` and configure the build with -DTACTUS_FLASHINFER=ON, "
        "or use --attention-backend tactus",
        kFlag);
  }
  if (use.type == Real::kF32) {
    return InvalidArgument(
        "--attention-backend flashinfer is not possible with --dtype float32: FlashInfer's kernels are built for "
        "bfloat16 and float16; use one of these, or --attention-backend tactus",
        kFlag);
  }
  if (use.kv_type != (use.type == Real::kBF16 ? KvType::kBF16 : KvType::kF16)) {
    return InvalidArgument(
        "--attention-backend flashinfer is possible with --kv-cache-dtype auto alone, K and V of --dtype: use it, or "
        "--attention-backend tactus",
        kFlag);
  }
  if (use.overlap) {
    return InvalidArgument(
        "--attention-backend flashinfer is not possible with --overlap nano: its steps run in one part; use --overlap "
        "off, or --attention-backend tactus",
        kFlag);
  }
  for (const Layer& layer : config.layers) {
    const AttentionBlock* const a = AttentionOf(layer);
    if (a != nullptr) TACTUS_RETURN_IF_ERROR(CheckLayer(*a));
  }
  return Status();
}

Status CheckFlashInferSize(int64_t max_items, int64_t max_model_len, int32_t block_size) {
  const int64_t each = RoundedUp(max_model_len, block_size);
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max() / 2;
  if (max_items * each <= kMost) return Status();
  return InvalidArgument(
      fmt::format("--attention-backend flashinfer serves {} tokens of context in a step, but --max-num-seqs {} of "
                  "--max-model-len {} are {}: lower one of them, or use --attention-backend tactus",
                  kMost, max_items, max_model_len, max_items * each),
      "max-num-seqs");
}

}  // namespace tactus::compute::cuda
