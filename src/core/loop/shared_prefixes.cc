#include "core/loop/shared_prefixes.h"

namespace tactus::core {

void SharedPrefixes::Find(StepPlan* plan) {
  plan->prefixes.clear();
  decodes_.clear();
  size_t prompts = 0;
  for (size_t i = 0; i < plan->items.size(); ++i) {
    if (prompts < plan->prompt_items.size() && plan->prompt_items[prompts] == static_cast<int32_t>(i)) {
      ++prompts;
      continue;
    }
    const StepItem& item = plan->items[i];
    if (item.count == 1) decodes_.push_back({.blocks = kv_.Table(item.slot).data(), .tokens = item.first_position + 1});
  }
  if (groups_.Find(decodes_) == 0) return;
  for (const PrefixGroups::Sequence& s : decodes_) {
    if (s.group < 0) continue;
    if (plan->prefixes.size() <= static_cast<size_t>(s.group)) plan->prefixes.resize(static_cast<size_t>(s.group) + 1);
    PrefixShape& prefix = plan->prefixes[static_cast<size_t>(s.group)];
    prefix.tokens = s.shared_tokens;
    ++prefix.decodes;
  }
}

}  // namespace tactus::core
