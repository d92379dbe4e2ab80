#include "compute/convert/tensor_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tactus::compute {
namespace {

bool IsQOrK(Role role) {
  return role == Role::kQ || role == Role::kK || role == Role::kQBias || role == Role::kKBias;
}

// The name under which the file gets a tensor. Families with a second name (Falcon) use the first in layers whose
// blocks stand side by side, each with its norm.
std::string NameFor(const TensorRequest& to, const ModelConfig& config) {
  if (to.alternative.empty()) return to.name;
  const Layer& layer = config.layers[static_cast<size_t>(to.tensor.layer)];
  const bool two_norms = layer.size() == 2 && layer[1].parallel && layer[0].norm != layer[1].norm;
  return two_norms ? to.name : to.alternative;
}

Status Unwritable(const Architecture& target, const ModelTensor& t, const char* why) {
  return Unimplemented("models of the family " + std::string(target.name) + " cannot be written in this form: tensor " +
                       std::to_string(static_cast<int>(t.role)) + " of layer " + std::to_string(t.layer) + " " + why);
}

void FindPlaces(PlannedTensor* planned) {
  if (planned->parts.size() == 1 && planned->rows == planned->parts[0].to.tensor.rows) return;
  // Tokens beyond the table of a layer's inputs have its first row.
  const bool repeats = planned->parts[0].to.tensor.role == Role::kInputTable;
  planned->places.resize(static_cast<size_t>(planned->rows), {repeats ? 0 : PlannedTensor::kNoPart, 0});
  for (size_t p = 0; p < planned->parts.size(); ++p) {
    const TensorRequest& to = planned->parts[p].to;
    for (int64_t row = 0; row < to.tensor.rows; ++row) {
      const int64_t at = to.RowInFile(row);
      if (at < planned->rows)
        planned->places[static_cast<size_t>(at)] = {static_cast<uint32_t>(p), static_cast<uint32_t>(row)};
    }
  }
}

TensorPart PartOf(const ModelConfig& config, const OpenedWeights& opened, const ModelTensor& t, TensorRequest to) {
  TensorPart part{RequestOf(config, *opened.names, t), std::move(to), {}, nullptr};
  if (IsMatrix(t.role)) {
    part.matrix = MatrixAt(opened.weights, t);
  } else {
    part.vector = OwnerOf(opened.weights, t).vector(t.role);
  }
  return part;
}

// The number of rows is known once all parts are.
Status CheckComplete(const Architecture& target, const PlannedTensor& planned) {
  int64_t rows = 0;
  for (const TensorPart& part : planned.parts) rows += part.to.tensor.rows;
  const ModelTensor& first = planned.parts[0].to.tensor;
  if (rows == planned.rows || first.role == Role::kPositions || first.role == Role::kInputTable) return Status();
  return Unwritable(target, first, "lacks parts of its rows");
}

}  // namespace

std::pair<const TensorPart*, int64_t> PlannedTensor::Source(int64_t row) const {
  const TensorPart* part = parts.data();
  if (!places.empty()) {
    const auto [index, own] = places[static_cast<size_t>(row)];
    if (index == kNoPart) return {nullptr, 0};
    part += index;
    row = own;
  }
  if (order == HeadOrder::kSame || !IsQOrK(part->to.tensor.role)) return {part, row};
  const int64_t head = row / head_dim * head_dim, at = row % head_dim, half = head_dim / 2;
  if (order == HeadOrder::kToPairs) return {part, head + at % 2 * half + at / 2};
  return {part, head + at % half * 2 + at / half};
}

Result<std::vector<PlannedTensor>> PlanTensors(const ModelConfig& config, const OpenedWeights& opened,
                                               const Architecture& target, const TensorNames& names, HeadOrder order,
                                               const std::function<DType(const TensorPart&)>& format) {
  const std::vector<ModelTensor> tensors = config.Tensors();
  std::map<std::string, size_t> index;
  std::set<std::tuple<int64_t, Role, int64_t>> seen;
  std::vector<PlannedTensor> plan;
  for (const ModelTensor& t : tensors) {
    if (!seen.emplace(t.layer, t.role, t.expert).second) continue;  // one norm before two blocks
    TensorRequest to = RequestOf(config, names, t);
    if (to.name.empty()) return Unwritable(target, t, "has no name there");
    const AttentionBlock* attention = t.layer < 0 ? nullptr : AttentionOf(config.layers[static_cast<size_t>(t.layer)]);
    if (order != HeadOrder::kSame && attention != nullptr && attention->qk_norm != QkNorm::kNone) {
      return Unwritable(target, t, "has norms of q and k, whose order with pairs is not known");
    }
    const std::string name = NameFor(to, config);
    TensorPart part = PartOf(config, opened, t, std::move(to));
    const auto [found, is_new] = index.emplace(name, plan.size());
    if (is_new) {
      PlannedTensor planned;
      planned.name = name;
      planned.is_matrix = IsMatrix(t.role);
      planned.transposed = planned.is_matrix && part.to.transposed();
      planned.stacked = part.to.stacked;
      planned.rows = part.to.FileRows() * std::max<int64_t>(1, planned.stacked), planned.cols = t.cols;
      // GGUF files have an input for every token of the vocabulary.
      if (t.role == Role::kInputTable && &names == target.gguf_names) planned.rows = config.vocab_size;
      planned.dtype = format(part);
      planned.order = order;
      planned.head_dim = attention != nullptr ? attention->head_dim : 0;
      planned.addend = part.to.form == TensorSource::kMinusOne ? -1.0f : 0.0f;
      planned.one_row = part.to.form == TensorSource::kOneRow;
      plan.push_back(std::move(planned));
    }
    plan[found->second].parts.push_back(std::move(part));
  }
  for (PlannedTensor& planned : plan) {
    TACTUS_RETURN_IF_ERROR(CheckComplete(target, planned));
    FindPlaces(&planned);
  }
  return plan;
}

}  // namespace tactus::compute
