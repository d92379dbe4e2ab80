// The cost model behind CostModel::Create: operator times are tabulated so that a step's time costs a few loads.
//
// A step's time is, stage by stage: layers x (linear operators by token count + attention of every chunk + attention of
// the decodes, overlapped by nano-batches), the embedding in the first stage, the head and the sampler in the last, and
// the host's time, per step and per stage.
//
// Thread rule: immutable after Build.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "cost/fitted.h"
#include "cost/host_times.h"
#include "cost/log_grid.h"
#include "cost/operator_times.h"
#include "cost/registry.h"

namespace tactus::cost {

// A function of a count: one value per count up to the table's end, then linear. Never falls.
class CountTable {
 public:
  template <class F>
  void Fill(int64_t last, const F& f) {
    values_.resize(static_cast<size_t>(last) + 1);
    double least = 0;
    for (int64_t i = 0; i <= last; ++i) values_[static_cast<size_t>(i)] = least = std::max(least, f(i));
    // The slope over the second half, so that no single wave of tiles decides it.
    slope_ =
        (values_.back() - values_[values_.size() / 2]) / static_cast<double>(values_.size() - 1 - values_.size() / 2);
  }
  double At(int64_t count) const {
    const size_t i = static_cast<size_t>(count);
    return i < values_.size() ? values_[i] : values_.back() + slope_ * static_cast<double>(count - last());
  }
  int64_t last() const { return static_cast<int64_t>(values_.size()) - 1; }

 private:
  std::vector<double> values_;
  double slope_ = 0;
};

// Source of the operator times.
struct OperatorSource {
  std::string text;
  FitCoverage coverage;  // empty for the roofline
};

class HybridModel final : public CostModel {
 public:
  HybridModel(Deployment deployment, ModelSpec model, DeviceSpec device, WeightFormat format, HostTimes host,
              std::unique_ptr<OperatorTimes> operators, OperatorSource from);

  DurationNs StepTimeNs(const StepShape& shape) const override;
  int32_t tile_tokens() const override { return 128; }
  int32_t stages() const override { return deployment_.pp; }
  DurationNs StageTimeNs(const StepShape& shape, int32_t stage) const override;
  DurationNs SendTimeNs(const StepShape& shape) const override;

  using CostModel::PlanKv;
  Result<KvPlan> PlanKv(double memory_utilization, int32_t block_size, int64_t max_step_tokens,
                        LargestStep largest) const override;
  std::string Describe() const override;
  std::vector<StepPart> StepParts(const StepShape& shape) const override;
  std::string Extrapolation(const StepShape& most) const override;
  int64_t max_model_len() const override { return model_.context; }
  double StepFlops(const StepShape& shape) const override;
  double StepBytes(const StepShape& shape) const override;
  double peak_flops() const override { return format_.flops * devices(); }
  double peak_bandwidth() const override { return device_.bandwidth * devices(); }
  OverlapFit overlap() const override { return nano_ ? deployment_.overlap_fit : kNoOverlap; }

 private:
  double devices() const { return static_cast<double>(deployment_.tp) * deployment_.pp; }
  int64_t StageLayers(int32_t stage) const;
  void FillTokenTables();
  void FillAttentionTables();
  // An operator of one layer, except attention, by the step's tokens.
  struct LayerOperator {
    const char* name;
    const char* kind;
    bool product;  // of matrices
    std::function<double(int64_t)> ns;
  };
  std::vector<LayerOperator> LayerOperators() const;
  // Attention of one layer: of the chunks (and of prefixes that are read once), of the decodes beside them, and of the
  // decodes in a separate kernel.
  struct AttentionParts {
    double chunks_ns = 0, decodes_ns = 0, own_kernel_ns = 0;
  };
  AttentionParts Apart(const StepShape& shape) const;
  AttentionParts Cascade(const StepShape& shape) const;  // prefixes are read once
  AttentionParts PartsOf(const StepShape& shape, double chunks_sum_ns, double longest_ns, int64_t own_tokens) const;
  double LayerNs(const StepShape& shape) const;  // one layer
  double LayerWith(const StepShape& shape, const AttentionParts& attention) const;
  bool ReadsTogether(const StepShape& shape) const;

  const Deployment deployment_;
  const ModelSpec model_;
  const DeviceSpec device_;
  const WeightFormat format_;
  const std::unique_ptr<OperatorTimes> operators_;
  const OperatorSource from_;
  const bool nano_;                 // Deployment::overlap
  const AttentionShape attention_;  // of one device
  const double window_;             // infinity: none
  double prefill_base_ns_ = 0;
  const HostTimes host_;
  double swap_block_ns_ = 0;
  CountTable layer_, embed_, head_, send_;
  LogGrid adds_, alone_;     // by chunk tokens, context
  LogGrid decode_, beside_;  // by sequences, their mean context; beside_: in a step with chunks
};

// One device's share of a model's attention.
AttentionShape AttentionOf(const ModelSpec& model, const Deployment& deployment);

// Bytes of weights on one device of the largest stage.
int64_t WeightBytesPerDevice(const ModelSpec& model, const WeightFormat& format, int32_t tp, int32_t pp);

}  // namespace tactus::cost
