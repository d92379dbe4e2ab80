#include "support/faulty_executor.h"

namespace tactus {

bool FaultyExecutor::Poll(StepResult* result) {
  if (!inner_->Poll(result)) return false;
  const int64_t step = polled_++;
  for (const InjectedFault& fault : faults_) {
    if (fault.step != step) continue;
    if (fault.kind == InjectedFault::Kind::kStep) {
      result->status = Internal("injected fault");
      result->items.clear();
      result->tokens.clear();
      result->logprobs.clear();
      result->prompt_logprobs.clear();
    } else if (fault.kind == InjectedFault::Kind::kNoTokens) {
      result->tokens.clear();
    } else if (static_cast<size_t>(fault.item) < result->items.size()) {
      ItemResult& item = result->items[static_cast<size_t>(fault.item)];
      item.status = fault.kind == InjectedFault::Kind::kBadLogits ? ItemStatus::kBadLogits : ItemStatus::kFailed;
      item.num_tokens = 0;
      std::erase_if(result->logprobs, [&](const StepResult::TokenLogprobs& l) { return l.item == fault.item; });
    }
  }
  return true;
}

}  // namespace tactus
