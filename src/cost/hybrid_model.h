// The cost model behind CostModel::Create: operator times are tabulated so that a step's time costs a few loads.
//
// A step's time is, stage by stage and for each kind of layer: layers x (linear operators by token count + attention of
// every chunk + attention of the decodes, overlapped by nano-batches), the embedding in the first stage, the head and
// the sampler in the last, and the host's time, per step and per stage.
//
// Thread rule: immutable after Build.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compute/config/block_work.h"
#include "cost/attention_tables.h"
#include "cost/cost_model.h"
#include "cost/fitted.h"
#include "cost/host_times.h"
#include "cost/layer_operators.h"
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
  // Between counts: linear.
  double Between(double count) const {
    const auto below = static_cast<int64_t>(count);
    return At(below) + (count - static_cast<double>(below)) * (At(below + 1) - At(below));
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
  // Pipelines' steps are priced by themselves, as if all replicas had equal ones.
  int32_t replicas_together() const override { return deployment_.pp == 1 ? deployment_.ep : 1; }
  DurationNs TogetherNs(std::span<const JointStep> steps) const override;

  using CostModel::PlanKv;
  Result<KvPlan> PlanKv(double memory_utilization, int32_t block_size, int64_t max_step_tokens,
                        LargestStep largest) const override;
  std::string Describe() const override;
  bool uses_peers() const override;
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
  // Equal layers, as one device has them.
  struct Kind {
    compute::Layer layer;             // of the whole model
    compute::BlockWork work;          // of the layer
    std::vector<int64_t> in_stage;    // number of such layers in each stage
    double layers = 0;                // of all stages
    std::optional<size_t> attention;  // in attention_
    CountTable tokens;                // time of all operators but attention, of one layer
    CountTable of_all;                // of these, that of the operators of all replicas
  };
  void FillKinds();
  void FillTokenTables();
  std::vector<LayerOperator> Operators(const Kind& kind) const;
  AttentionParts Apart(const Kind& kind, const StepShape& shape) const;
  double LayerNs(const Kind& kind, const StepShape& shape) const;  // one layer
  double LayerWith(const Kind& kind, const StepShape& shape, const AttentionParts& attention) const;
  double AroundLayersNs(double layers_ns, const StepShape& shape, int32_t stage) const;
  bool ReadsTogether(const Kind& kind, const StepShape& shape) const;
  double KvTokenBytes() const;                    // of the whole model
  double StageKvTokenBytes(int32_t stage) const;  // of one device

  const Deployment deployment_;
  const ModelSpec model_;
  const DeviceSpec device_;
  const WeightFormat format_;
  const std::unique_ptr<OperatorTimes> operators_;
  const OperatorSource from_;
  const bool nano_;  // Deployment::overlap
  const HostTimes host_;
  double swap_block_ns_ = 0;
  std::vector<Kind> kinds_;
  std::vector<AttentionTables> attention_;  // of different shapes and windows
  CountTable embed_, head_, send_;
};

// Layers of a stage: distributed as evenly as possible, the remainder to the first stages.
struct StageLayers {
  int64_t first = 0, count = 0;
};
StageLayers LayersOfStage(int64_t layers, int32_t stage, int32_t pp);

// Whether `tp` devices can share every layer's attention.
bool DividesHeads(const ModelSpec& model, int32_t tp);

// One device's share of an attention block.
AttentionShape AttentionOf(const compute::AttentionBlock& block, const Deployment& deployment);

// Bytes of weights on one device of the largest stage. `ep`: Deployment::ep.
int64_t WeightBytesPerDevice(const ModelSpec& model, const WeightFormat& format, int32_t tp, int32_t pp,
                             int32_t ep = 1);

}  // namespace tactus::cost
