// A tiny model on the device of the tests, one step at a time.
#pragma once

#include <string>

#include "base/clock.h"
#include "compute/cuda/step_launcher.h"
#include "compute/weights/open_weights.h"

namespace tactus::test {

struct CudaModelOptions {
  compute::cuda::Real type = compute::cuda::Real::kF32;
  compute::cuda::KvType kv_type = compute::cuda::KvType::kF32;
  int32_t multiprocessors = 8;
  int32_t max_in_flight = 1;
  bool batch_invariant = true;
  bool fp8_tokens = false;
  bool overlap = false;  // of every step that can be cut in two
  double attention_share = 0.5;
  compute::PackChoice packing;
  bool fuse = true;
  bool graphs = true;
  compute::cuda::AttentionBackend attention = compute::cuda::AttentionBackend::kTactus;
};

// Loads the model's weights to the device.
inline Result<compute::cuda::DeviceWeights> LoadCudaWeights(const compute::ModelDescription& description,
                                                            const CudaModelOptions& model) {
  TACTUS_ASSIGN_OR_RETURN(const auto device, compute::cuda::OpenDevice(0));
  TACTUS_ASSIGN_OR_RETURN(const auto opened, compute::OpenWeights(description, compute::MatrixUse::kRows));
  const compute::cuda::DeviceWeightChoice choice{.type = model.type, .packing = model.packing, .fuse = model.fuse};
  return compute::cuda::LoadDeviceWeights(description.config, *opened, {.choice = choice}, SystemClock());
}

// `size`: of the executor.
inline compute::cuda::CudaExecutorOptions ExecutorOptionsOf(const CudaModelOptions& model, const ExecutorSize& size) {
  compute::cuda::CudaExecutorOptions options;
  options.type = model.type;
  options.kv_type = model.kv_type;
  options.multiprocessors = model.multiprocessors;
  options.max_in_flight = model.max_in_flight;
  options.batch_invariant = model.batch_invariant;
  options.fp8_tokens = model.fp8_tokens;
  options.overlap = model.overlap;
  options.attention_share = model.attention_share;
  options.graphs = model.graphs;
  options.attention = model.attention;
  options.size = size;
  options.size.least_split_tokens = 2;
  options.clock = &SystemClock();
  return options;
}

// As StepRunner: runs one plan to its end.
class CudaRunner {
 public:
  static Result<std::unique_ptr<CudaRunner>> Create(const compute::ModelDescription& description,
                                                    const CudaModelOptions& model, const ExecutorSize& size) {
    TACTUS_ASSIGN_OR_RETURN(auto weights, LoadCudaWeights(description, model));
    auto runner = std::make_unique<CudaRunner>();
    TACTUS_ASSIGN_OR_RETURN(
        runner->launcher_,
        compute::cuda::StepLauncher::Create(description.config, std::move(weights), ExecutorOptionsOf(model, size)));
    runner->step_ = runner->launcher_->NewStep();
    return runner;
  }
  void Run(const StepPlan& plan, StepResult* result) {
    launcher_->Launch(plan, step_.get());
    launcher_->Finish(step_.get(), result);
  }
  void set_logits_observer(compute::cuda::StepLauncher::LogitsObserver observer) {
    launcher_->set_logits_observer(std::move(observer));
  }
  const compute::cuda::StepLauncher& launcher() const { return *launcher_; }

 private:
  std::unique_ptr<compute::cuda::StepLauncher> launcher_;
  std::unique_ptr<compute::cuda::LaunchedStep> step_;
};

}  // namespace tactus::test
