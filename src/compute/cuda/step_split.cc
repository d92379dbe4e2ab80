#include "compute/cuda/step_split.h"

#include <algorithm>

namespace tactus::compute::cuda {

StepSplit::StepSplit(int32_t block_size, int64_t num_blocks)
    : block_size_(block_size), stored_(static_cast<size_t>(num_blocks)) {}

void StepSplit::Part::Clear() {
  rows.clear();
  last_rows.clear();
  logit_rows.clear();
  tokens = 0;
}

void StepSplit::Part::Add(AttentionRow row, int32_t logits) {
  row.first_token = static_cast<int32_t>(tokens);
  rows.push_back(row);
  tokens += row.count;
  if (logits == 0) return;
  row.first_position += row.count - logits;
  row.count = logits;
  row.first_token = static_cast<int32_t>(logit_rows.size());
  last_rows.push_back(row);
  for (int64_t t = tokens - logits; t < tokens; ++t) logit_rows.push_back(static_cast<int32_t>(t));
}

bool StepSplit::Cut(std::span<const AttentionRow> rows, std::span<const AttentionRow> last_rows,
                    std::span<const BlockId> tables) {
  int64_t tokens = 0;
  for (const AttentionRow& row : rows) tokens += row.count;
  const auto half = static_cast<int32_t>(tokens / 2);
  for (Part& part : parts_) part.Clear();
  size_t next_last = 0;
  for (const AttentionRow& row : rows) {
    const auto is_end_of_row = [&](const AttentionRow& last) {
      return last.table == row.table && last.first_position + last.count == row.first_position + row.count;
    };
    const bool has_logits = next_last < last_rows.size() && is_end_of_row(last_rows[next_last]);
    const int32_t logits = has_logits ? last_rows[next_last++].count : 0;
    const int32_t room = half - row.first_token;
    if (row.count <= room || room <= 0) {
      parts_[room <= 0 ? 1 : 0].Add(row, logits);
      continue;
    }
    AttentionRow first = row, rest = row;
    first.count = std::max((row.first_position + room) / block_size_ * block_size_ - row.first_position, 0);
    rest.first_position += first.count;
    rest.count -= first.count;
    const int32_t rest_logits = std::min(logits, rest.count);
    if (first.count > 0) parts_[0].Add(first, logits - rest_logits);
    parts_[1].Add(rest, rest_logits);
  }
  parts_[1].first_token = parts_[0].tokens;
  parts_[1].first_logit_row = std::ssize(parts_[0].logit_rows);
  return parts_[0].tokens > 0 && parts_[1].tokens > 0 && !FirstReadsWhatTheSecondStores(tables);
}

bool StepSplit::FirstReadsWhatTheSecondStores(std::span<const BlockId> tables) {
  ++cut_;
  const auto blocks = [&](const AttentionRow& row, int32_t first_position) {
    const int32_t first = first_position / block_size_, end = (row.first_position + row.count - 1) / block_size_ + 1;
    return tables.subspan(static_cast<size_t>(row.table + first), static_cast<size_t>(end - first));
  };
  for (const AttentionRow& row : parts_[1].rows) {
    for (const BlockId b : blocks(row, row.first_position)) stored_[static_cast<size_t>(b)] = cut_;
  }
  return std::any_of(parts_[0].rows.begin(), parts_[0].rows.end(), [&](const AttentionRow& row) {
    const auto read = blocks(row, 0);
    return std::any_of(read.begin(), read.end(), [&](BlockId b) { return stored_[static_cast<size_t>(b)] == cut_; });
  });
}

void StepSplit::Plan(std::span<const AttentionShape> shapes, int64_t max_slots) {
  for (Part& part : parts_) {
    part.plans.resize(shapes.size());
    part.last_plans.resize(shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
      PlanAttention(part.rows, shapes[i], max_slots, &part.plans[i]);
      PlanAttention(part.last_rows, shapes[i], max_slots, &part.last_plans[i]);
    }
  }
}

void StepSplit::Place(StepBuffer& b) {
  for (Part& part : parts_) {
    part.at_rows = b.Place<AttentionRow>(std::ssize(part.rows));
    part.at_last_rows = b.Place<AttentionRow>(std::ssize(part.last_rows));
    part.at_logit_rows = b.Place<int32_t>(std::ssize(part.logit_rows));
    part.units.Place(b, part.plans);
    part.last_units.Place(b, part.last_plans);
  }
}

void StepSplit::Fill(const StepBuffer& b) const {
  for (const Part& part : parts_) {
    b.Fill(part.at_rows, std::span(part.rows));
    b.Fill(part.at_last_rows, std::span(part.last_rows));
    b.Fill(part.at_logit_rows, std::span(part.logit_rows));
    part.units.Fill(b, part.plans);
    part.last_units.Fill(b, part.last_plans);
  }
}

std::array<DeviceBatch, 2> StepSplit::Batches(const StepBuffer& b, const DeviceBatch& whole,
                                              int32_t multiprocessors) const {
  std::array<DeviceBatch, 2> batches;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    DeviceBatch& batch = batches[i];
    batch.ids = whole.ids + part.first_token;
    batch.kv_slots = whole.kv_slots + part.first_token;
    batch.tables = whole.tables;
    batch.logit_rows = b.Device<int32_t>(part.at_logit_rows);
    batch.all.tokens = part.tokens;
    batch.all.positions = whole.all.positions + part.first_token;
    batch.all.rows = b.Device<AttentionRow>(part.at_rows);
    batch.all.units = part.units.Units(b, part.plans);
    batch.last.tokens = std::ssize(part.logit_rows);
    batch.last.positions = whole.last.positions + part.first_logit_row;
    batch.last.rows = b.Device<AttentionRow>(part.at_last_rows);
    batch.last.units = part.last_units.Units(b, part.last_plans);
    batch.attention_multiprocessors = multiprocessors;
  }
  return batches;
}

}  // namespace tactus::compute::cuda
