#include "compute/packing/pack_weights.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>

namespace tactus::compute {
namespace {

constexpr int64_t kPackedAlignment = 64;
constexpr int64_t kTaskBytes = int64_t{1} << 20;  // bytes of rows per task; at least one panel
constexpr int64_t kPrefetchTasks = 16;            // how far ahead of the packing files are read

// Panels [first, first + count) of a slot.
struct PackTask {
  const PackedSlot* slot = nullptr;
  int64_t first = 0, count = 0;

  int64_t first_row() const { return first * kPanelRows; }
  int64_t rows() const { return std::min(count * kPanelRows, slot->form.rows - first_row()); }
  int64_t bytes() const { return rows() * slot->source.row_bytes; }
};

bool FormFor(const PackChoice& choice, const MatrixPlace& place, PackedMatrix* form) {
  const MatrixView& m = *place.view;
  if (IsRouting(place.request.tensor.role)) return PackedFormOf(m.dtype, m.rows, m.cols, form);
  if (choice.round_to_bf16) return PackedFormOf(DType::kBF16, m.rows, m.cols, form);
  if (choice.quantization == Quantization::kNone) return PackedFormOf(m.dtype, m.rows, m.cols, form);
  // Embedding and output matrix in 4 bits would raise int4's error by half (docs/measurements/numerics.md).
  const bool wide = place.vocabulary() && choice.quantization == Quantization::kInt4;
  return QuantizedFormOf(wide ? Quantization::kInt8 : choice.quantization, m.rows, m.cols, form);
}

// The experts of a layer take the same tokens. Numbered matrices outside the layers, those of streams, do not.
// `experts`: the form of the first one's matrices, by layer and role.
Status CheckExpert(const PackedSlot& slot, const std::string& name,
                   std::map<std::pair<int64_t, Role>, PackedMatrix>* experts) {
  if (slot.tensor.expert < 0 || slot.tensor.layer < 0) return Status();
  const auto [first, is_first] = experts->emplace(std::pair(slot.tensor.layer, slot.tensor.role), slot.form);
  if (is_first || slot.form.SameForm(first->second)) return Status();
  return InvalidArgument("tensor '" + name + "' is " + InfoOf(slot.source.dtype).name +
                             ", another type than expert 0's in this layer; the experts of a layer have one type "
                             "(--quantization makes one of several)",
                         "quantization");
}

TokenRoundings RoundingsFor(const ModelConfig& config, const PackChoice& choice) {
  const Rounding rounding = choice.rounding;
  TokenRoundings r = {rounding, rounding, rounding, rounding};
  if (rounding == Rounding::kMixed) {
    r.down = Rounding::kMixedFine;
    r.lm_head = choice.quantization == Quantization::kInt4 ? Rounding::kMixedFine : Rounding::kInt16;
  }
  if (rounding != Rounding::kInt8) return r;
  int64_t kv = 0, others = 0;
  for (const ModelTensor& t : config.Tensors()) {
    if (t.layer < 0 || !IsMatrix(t.role)) continue;
    (t.role == Role::kK || t.role == Role::kV ? kv : others) += t.elements();
  }
  r.lm_head = Rounding::kInt16;
  if (12 * kv <= kv + others) r.kv = Rounding::kInt16;
  return r;
}

// In file order, so that files are read from front to back.
std::vector<PackTask> TasksOf(const PackPlan& plan) {
  std::vector<const PackedSlot*> slots;
  for (const PackedSlot& slot : plan.slots) slots.push_back(&slot);
  std::sort(slots.begin(), slots.end(), [](const PackedSlot* a, const PackedSlot* b) {
    const auto at_a = reinterpret_cast<uintptr_t>(a->source.data), at_b = reinterpret_cast<uintptr_t>(b->source.data);
    return at_a != at_b ? at_a < at_b : a->offset < b->offset;  // dummies have no place in a file: by offset
  });
  std::vector<PackTask> tasks;
  for (const PackedSlot* slot : slots) {
    const int64_t panels = slot->form.panels(), panel_rows_bytes = kPanelRows * slot->source.row_bytes;
    const int64_t step = std::max<int64_t>(1, kTaskBytes / std::max<int64_t>(panel_rows_bytes, 1));
    for (int64_t first = 0; first < panels; first += step)
      tasks.push_back({slot, first, std::min(step, panels - first)});
  }
  return tasks;
}

void RunTask(const PackTask& task, WeightSource& source, std::byte* scratch, std::byte* memory) {
  const PackedSlot& slot = *task.slot;
  const int64_t first_row = task.first_row(), rows = task.rows();
  MatrixView part = slot.source;
  part.data = source.Rows(slot.name, slot.source, first_row, rows, scratch);
  part.rows = rows;
  PackedMatrix form = slot.form;
  form.rows = rows;
  PackPanels(part, form, 0, task.count, memory + slot.offset + task.first * form.panel_bytes);
  source.Release(slot.source, first_row, rows);
}

}  // namespace

bool IsInt4(const PackedMatrix& form) {
  return form.code == PackedCode::kU4 && form.has_zeros;
}

Result<PackPlan> PlanPacking(const ModelConfig& config, const TensorNames& names, const PackChoice& choice,
                             ModelWeights* weights) {
  PackPlan plan;
  plan.calibrate = choice.calibrate && choice.quantization == Quantization::kInt4;
  std::map<std::pair<int64_t, Role>, PackedMatrix> experts;
  for (const MatrixPlace& place : MatrixPlaces(config, names, weights)) {
    PackedSlot slot;
    slot.name = place.request.id;
    slot.tensor = place.request.tensor;
    slot.source = *place.view;
    if (!FormFor(choice, place, &slot.form)) {
      return InvalidArgument(
          "tensor '" + place.request.name + "' (" + InfoOf(slot.source.dtype).name +
              ") has no packed form of this kind; --activation-dtype float32 uses it as it is stored",
          "activation-dtype");
    }
    TACTUS_RETURN_IF_ERROR(CheckExpert(slot, place.request.name, &experts));
    slot.offset = plan.bytes;
    plan.bytes += (slot.form.bytes() + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
    plan.source_bytes += slot.source.rows * slot.source.row_bytes;
    plan.slots.push_back(std::move(slot));
  }
  return plan;
}

Status PackAll(const PackPlan& plan, WeightSource& source, ThreadPool& pool, std::byte* memory,
               const std::function<void(int64_t)>& progress) {
  const std::vector<PackTask> tasks = TasksOf(plan);
  int64_t most = 0;
  for (const PackTask& task : tasks) most = std::max(most, task.bytes());
  most = (most + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
  // Used only by sources that cannot return rows in place.
  const std::unique_ptr<void, decltype(&std::free)> scratch(
      std::aligned_alloc(kPackedAlignment, static_cast<size_t>(most * pool.threads())), &std::free);
  if (scratch == nullptr) {
    return Status(StatusCode::kResourceExhausted,
                  "no memory to pack the weights (" + std::to_string(most * pool.threads()) + " bytes)");
  }
  std::atomic<int64_t> done{0};
  const auto count = static_cast<int64_t>(tasks.size());
  for (int64_t i = 0; i < std::min(kPrefetchTasks, count); ++i) {
    const PackTask& ahead = tasks[static_cast<size_t>(i)];
    source.Prefetch(ahead.slot->source, ahead.first_row(), ahead.rows());
  }
  pool.ParallelFor(count, [&](int64_t i, int32_t thread) {
    if (i + kPrefetchTasks < count) {
      const PackTask& ahead = tasks[static_cast<size_t>(i + kPrefetchTasks)];
      source.Prefetch(ahead.slot->source, ahead.first_row(), ahead.rows());
    }
    const PackTask& task = tasks[static_cast<size_t>(i)];
    RunTask(task, source, static_cast<std::byte*>(scratch.get()) + most * thread, memory);
    const int64_t bytes = done.fetch_add(task.bytes(), std::memory_order_relaxed) + task.bytes();
    if (thread == 0 && progress) progress(bytes);
  });
  return Status();
}

void BindPacked(const PackPlan& plan, const ModelConfig& config, const PackChoice& choice, const std::byte* memory,
                CpuWeights* weights) {
  auto packed = std::make_shared<PackedWeights>();
  packed->roundings = RoundingsFor(config, choice);
  ResizeLayers(config, packed.get());
  for (const PackedSlot& slot : plan.slots) {
    PackedMatrix& matrix = MatrixAt(*packed, slot.tensor);
    matrix = slot.form;
    matrix.data = memory + slot.offset;
    MatrixAt(*weights, slot.tensor).data = nullptr;
  }
  if (config.tie_embeddings) {
    packed->lm_head = packed->embedding;
    weights->lm_head.data = nullptr;
  }
  weights->packed = std::move(packed);
  weights->bytes += plan.bytes;
}

std::string PackedFormatText(const PackChoice& choice, const std::string& source_format) {
  if (choice.round_to_bf16) return "bf16 from " + source_format;
  switch (choice.quantization) {
    case Quantization::kNone:
      return source_format;
    case Quantization::kQ8_0:
      return "q8_0 from " + source_format;
    case Quantization::kInt8:
      return "int8 from " + source_format;
    case Quantization::kInt4:
      return std::string(choice.calibrate ? "int4 by least squares from " : "int4 from ") + source_format;
  }
  return source_format;
}

}  // namespace tactus::compute
