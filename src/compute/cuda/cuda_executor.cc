#include "compute/cuda/cuda_executor.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/shortage.h"
#include "base/thread_role.h"

namespace tactus::compute::cuda {
namespace {

// Steps are counted: submitted >= launched >= finished >= polled. Step n is in ring entry n % max_in_flight from Submit
// to Poll. The mutex guards the counters alone; an entry belongs to the launching thread until `launched` passes it, to
// the finishing thread until `finished` does, then to the engine.
class CudaExecutor final : public Executor {
 public:
  CudaExecutor(std::unique_ptr<StepLauncher> launcher, const CudaExecutorOptions& options)
      : launcher_(std::move(launcher)), clock_(*options.clock), ring_(static_cast<size_t>(options.max_in_flight)) {
    for (Entry& entry : ring_) entry.step = launcher_->NewStep();
    launching_ = std::thread([this] { LaunchAll(); });
    finishing_ = std::thread([this] { FinishAll(); });
  }

  // Finishes the launched steps and drops the others.
  ~CudaExecutor() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    launching_.join();
    finishing_.join();
  }

  ExecutorTraits traits() const override {
    ExecutorTraits traits;
    traits.max_in_flight = static_cast<int32_t>(ring_.size());
    traits.can_chain = true;
    traits.max_draft_tokens = kMaxDraftTokens;
    traits.name = "cuda";
    return traits;
  }

  void Submit(const StepPlan& plan) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      TACTUS_CHECK_MSG(submitted_ - polled_ < ring_.size(), "more plans outstanding than max_in_flight");
      ring_[submitted_ % ring_.size()].plan = &plan;
      ++submitted_;
    }
    changed_.notify_all();
  }

  bool Poll(StepResult* result) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (polled_ == finished_) return false;
    std::swap(*result, ring_[polled_ % ring_.size()].result);
    ++polled_;
    return true;
  }

  void SetWakeup(std::function<void()> wakeup) override {
    std::lock_guard<std::mutex> lock(mutex_);
    wakeup_ = std::move(wakeup);
  }

  std::optional<OverlapTimes> MeasureOverlap() override { return launcher_->MeasureOverlap(); }
  void SplitStepsFrom(int64_t tokens) override { launcher_->SplitStepsFrom(tokens); }

  int64_t kv_block_bytes() const override { return launcher_->kv_block_bytes(); }
  void ReadKvBlock(BlockId block, std::byte* to) const override { launcher_->ReadKvBlock(block, to); }
  void WriteHostBlock(BlockId host_block, const std::byte* from) override {
    launcher_->WriteHostBlock(host_block, from);
  }

 private:
  struct Entry {
    const StepPlan* plan = nullptr;
    std::unique_ptr<LaunchedStep> step;
    TimeNs launched_ns = 0;
    StepResult result;
  };

  void LaunchAll() {
    SetThreadRole(ThreadRole::kCompute, "tactus-launch");
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || launched_ < submitted_; });
      if (stop_) break;
      Entry& entry = ring_[launched_ % ring_.size()];
      lock.unlock();
      entry.launched_ns = clock_.NowNs();
      launcher_->Launch(*entry.plan, entry.step.get());
      lock.lock();
      ++launched_;
      changed_.notify_all();
    }
    launch_ended_ = true;
    changed_.notify_all();
  }

  void FinishAll() {
    SetThreadRole(ThreadRole::kCompute, "tactus-finish");
    TimeNs last_end_ns = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      // Goes on until no step can follow: a launch may wait for the steps before it.
      changed_.wait(lock, [this] { return finished_ < launched_ || launch_ended_; });
      if (finished_ == launched_) return;
      Entry& entry = ring_[finished_ % ring_.size()];
      lock.unlock();
      launcher_->Finish(entry.step.get(), &entry.result);
      // A step's work begins when it is launched or when the step before it ends.
      entry.result.start_ns = std::max(entry.launched_ns, last_end_ns);
      entry.result.end_ns = last_end_ns = clock_.NowNs();
      lock.lock();
      ++finished_;
      if (wakeup_) {
        lock.unlock();  // wakeup_ is set once, before the first Submit
        wakeup_();
        lock.lock();
      }
    }
  }

  const std::unique_ptr<StepLauncher> launcher_;
  Clock& clock_;
  std::vector<Entry> ring_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> wakeup_;
  uint64_t submitted_ = 0, launched_ = 0, finished_ = 0, polled_ = 0;
  bool stop_ = false, launch_ended_ = false;
  std::thread launching_, finishing_;
};

}  // namespace

Result<std::unique_ptr<Executor>> MakeCudaExecutor(const ModelConfig& config, DeviceWeights weights,
                                                   const CudaExecutorOptions& options) {
  return CatchShortage([&]() -> Result<std::unique_ptr<Executor>> {
    TACTUS_ASSIGN_OR_RETURN(auto launcher, StepLauncher::Create(config, std::move(weights), options));
    return std::unique_ptr<Executor>(std::make_unique<CudaExecutor>(std::move(launcher), options));
  });
}

}  // namespace tactus::compute::cuda
