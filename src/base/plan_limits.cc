#include "base/plan_limits.h"

#include <string>

namespace tactus {
namespace {

class PlanCheck {
 public:
  PlanCheck(const StepPlan& plan, const PlanLimits& limits) : plan_(plan), limits_(limits) {}

  Status Run() const {
    TACTUS_RETURN_IF_ERROR(CheckSequences());
    TACTUS_RETURN_IF_ERROR(CheckTables());
    TACTUS_RETURN_IF_ERROR(CheckCopies());
    TACTUS_RETURN_IF_ERROR(CheckSwaps());
    if (static_cast<int64_t>(plan_.items.size()) > limits_.max_step_items) {
      return Refuse("items", static_cast<int64_t>(plan_.items.size()), limits_.max_step_items);
    }
    int64_t tokens = 0;
    for (const StepItem& item : plan_.items) {
      TACTUS_RETURN_IF_ERROR(CheckItem(item));
      tokens += item.count;
    }
    if (tokens > limits_.max_step_tokens) return Refuse("tokens", tokens, limits_.max_step_tokens);
    return Status();
  }

 private:
  Status Refuse(const char* what, int64_t value, int64_t limit) const {
    return Internal("step " + std::to_string(plan_.step) + ": " + what + " " + std::to_string(value) + ", limit " +
                    std::to_string(limit));
  }
  bool BadSlot(SlotId slot) const { return slot < 0 || slot >= limits_.max_slots; }
  bool BadBlock(BlockId block) const { return block < 0 || block >= limits_.num_blocks; }

  Status CheckSequences() const {
    for (const SequenceStart& s : plan_.starts) {
      if (BadSlot(s.slot)) return Refuse("start of slot", s.slot, limits_.max_slots - 1);
      if (s.adapter < 0 || s.adapter > limits_.adapters) return Refuse("adapter", s.adapter, limits_.adapters);
      if (s.sampling.grammar != nullptr && !limits_.has_grammars) return Refuse("grammars", 1, 0);
      if ((s.sampling.prompt_logprobs || s.sampling.params.logprobs >= 0) && !limits_.has_logprobs) {
        return Refuse("sequences with logprobs", 1, 0);
      }
    }
    for (const SlotId s : plan_.forgets) {
      if (BadSlot(s)) return Refuse("end of slot", s, limits_.max_slots - 1);
    }
    return Status();
  }

  Status CheckTables() const {
    const auto blocks = static_cast<int64_t>(plan_.table_blocks.size());
    for (const TableUpdate& u : plan_.table_updates) {
      if (BadSlot(u.slot)) return Refuse("table of slot", u.slot, limits_.max_slots - 1);
      if (u.first_index < 0 || u.count < 0 || int64_t{u.first_index} + u.count > limits_.blocks_per_slot) {
        return Refuse("table entry", int64_t{u.first_index} + u.count, limits_.blocks_per_slot);
      }
      if (u.offset < 0 || int64_t{u.offset} + u.count > blocks) {
        return Refuse("end of table_blocks", int64_t{u.offset} + u.count, blocks);
      }
    }
    for (const BlockId b : plan_.table_blocks) {
      if (BadBlock(b)) return Refuse("block", b, limits_.num_blocks - 1);
    }
    return Status();
  }

  Status CheckCopies() const {
    for (const BlockCopy& c : plan_.copies) {
      if (BadBlock(c.from)) return Refuse("copy from block", c.from, limits_.num_blocks - 1);
      if (BadBlock(c.to)) return Refuse("copy to block", c.to, limits_.num_blocks - 1);
      if (c.tokens < 0 || c.tokens > limits_.block_size) return Refuse("copied tokens", c.tokens, limits_.block_size);
    }
    return Status();
  }

  Status CheckSwaps() const {
    for (const auto* swaps : {&plan_.swap_outs, &plan_.swap_ins}) {
      for (const SwapCopy& c : *swaps) {
        if (BadBlock(c.block)) return Refuse("swapped block", c.block, limits_.num_blocks - 1);
        if (c.host_block < 0 || c.host_block >= limits_.swap_blocks) {
          return Refuse("host block", c.host_block, limits_.swap_blocks - 1);
        }
        if (c.tokens < 1 || c.tokens > limits_.block_size)
          return Refuse("swapped tokens", c.tokens, limits_.block_size);
      }
    }
    return Status();
  }

  Status CheckItem(const StepItem& item) const {
    const int64_t max_len = limits_.blocks_per_slot * limits_.block_size;
    if (BadSlot(item.slot)) return Refuse("item of slot", item.slot, limits_.max_slots - 1);
    if (item.count < 1 || item.first_position < 0 || int64_t{item.first_position} + item.count > max_len) {
      return Refuse("end of item", int64_t{item.first_position} + item.count, max_len);
    }
    if (item.logit_rows < 0 || item.logit_rows > item.count) return Refuse("logit rows", item.logit_rows, item.count);
    if (item.sample && item.logit_rows == 0) return Refuse("sampled item's logit rows", 0, 1);
    if (item.draft_tokens < 0 || item.draft_tokens > limits_.max_draft_tokens) {
      return Refuse("draft tokens", item.draft_tokens, limits_.max_draft_tokens);
    }
    if (item.draft_tokens > 0 && (!item.sample || item.input != InputSource::kHost || item.draft_tokens >= item.count ||
                                  item.logit_rows != 1 + item.draft_tokens)) {
      return Refuse("logit rows of an item with drafts", item.logit_rows, 1 + item.draft_tokens);
    }
    if (item.input == InputSource::kChained) {
      if (!limits_.can_chain) return Refuse("chained inputs", 1, 0);
      if (item.count != 1) return Refuse("chained item's tokens", item.count, 1);
      return Status();
    }
    const auto tokens = static_cast<int64_t>(plan_.tokens.size());
    if (item.token_offset < 0 || int64_t{item.token_offset} + item.count > tokens) {
      return Refuse("end of input tokens", int64_t{item.token_offset} + item.count, tokens);
    }
    return Status();
  }

  const StepPlan& plan_;
  const PlanLimits& limits_;
};

}  // namespace

Status CheckPlan(const StepPlan& plan, const PlanLimits& limits) {
  return PlanCheck(plan, limits).Run();
}

}  // namespace tactus
