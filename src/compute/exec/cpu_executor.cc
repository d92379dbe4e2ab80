#include "compute/exec/cpu_executor.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/plan_limits.h"
#include "base/shortage.h"
#include "base/thread_role.h"
#include "compute/exec/step_runner.h"

namespace tactus::compute {
namespace {

// Steps are counted: submitted >= run >= polled. Step n lives in ring entry n % max_in_flight from Submit to Poll. The
// mutex guards the counters alone; an entry belongs to the leader until `run` passes it, to the engine afterwards.
class CpuExecutor final : public Executor {
 public:
  CpuExecutor(std::unique_ptr<StepRunner> runner, const CpuExecutorOptions& options)
      : runner_(std::move(runner)),
        clock_(*options.clock),
        ring_(static_cast<size_t>(options.max_in_flight)),
        leader_([this] { Lead(); }) {}

  // Finishes the running step and drops the others.
  ~CpuExecutor() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    work_.notify_one();
    leader_.join();
  }

  ExecutorTraits traits() const override {
    ExecutorTraits traits;
    traits.max_in_flight = static_cast<int32_t>(ring_.size());
    traits.can_chain = true;
    traits.max_draft_tokens = kMaxDraftTokens;
    traits.name = "cpu";
    return traits;
  }

  void Submit(const StepPlan& plan) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      TACTUS_CHECK_MSG(submitted_ - polled_ < ring_.size(), "more plans outstanding than max_in_flight");
      ring_[submitted_ % ring_.size()].plan = &plan;
      ++submitted_;
    }
    work_.notify_one();
  }

  bool Poll(StepResult* result) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (polled_ == run_) return false;
    std::swap(*result, ring_[polled_ % ring_.size()].result);  // a later step reuses the caller's buffers
    ++polled_;
    return true;
  }

  int64_t kv_block_bytes() const override { return runner_->kv_block_bytes(); }
  void ReadKvBlock(BlockId block, std::byte* to) const override { runner_->ReadKvBlock(block, to); }
  void WriteHostBlock(BlockId host_block, const std::byte* from) override { runner_->WriteHostBlock(host_block, from); }

  void SetWakeup(std::function<void()> wakeup) override {
    std::lock_guard<std::mutex> lock(mutex_);
    wakeup_ = std::move(wakeup);
  }

 private:
  struct Entry {
    const StepPlan* plan = nullptr;
    StepResult result;
  };

  void Lead() {
    SetThreadRole(ThreadRole::kCompute, "tactus-compute");
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      work_.wait(lock, [this] { return stop_ || run_ < submitted_; });
      if (stop_) return;
      Entry& entry = ring_[run_ % ring_.size()];
      lock.unlock();
      const TimeNs start_ns = clock_.NowNs();
      runner_->Run(*entry.plan, &entry.result);
      entry.result.start_ns = start_ns;
      entry.result.end_ns = clock_.NowNs();
      lock.lock();
      ++run_;
      if (wakeup_) {
        lock.unlock();  // wakeup_ is set once, before the first Submit
        wakeup_();
        lock.lock();
      }
    }
  }

  const std::unique_ptr<StepRunner> runner_;
  Clock& clock_;
  std::vector<Entry> ring_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::function<void()> wakeup_;
  uint64_t submitted_ = 0, run_ = 0, polled_ = 0;
  bool stop_ = false;
  std::thread leader_;  // last: it uses everything above
};

}  // namespace

Result<std::unique_ptr<Executor>> MakeCpuExecutor(const ModelConfig& config, CpuWeights weights,
                                                  const CpuExecutorOptions& options) {
  return CatchShortage([&]() -> Result<std::unique_ptr<Executor>> {
    TACTUS_CHECK_MSG(options.clock != nullptr, "an executor needs a clock");
    TACTUS_ASSIGN_OR_RETURN(auto runner, StepRunner::Create(config, std::move(weights), options));
    runner->set_operator_profile(options.profile);
    return std::unique_ptr<Executor>(std::make_unique<CpuExecutor>(std::move(runner), options));
  });
}

}  // namespace tactus::compute
