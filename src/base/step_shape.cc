#include "base/step_shape.h"

namespace tactus {

StepShape ShapeOf(const StepPlan& plan, std::vector<ChunkShape>* chunks) {
  chunks->clear();
  for (const int32_t i : plan.prompt_items) {
    const StepItem& item = plan.items[static_cast<size_t>(i)];
    chunks->push_back({item.first_position, item.count});
  }
  StepShape shape;
  shape.decode_context_tokens = plan.decode_context_tokens;
  if (plan.draft_tokens > 0) {  // a decode with drafts costs as much as a chunk of the same tokens
    for (const StepItem& item : plan.items) {
      if (item.draft_tokens == 0) continue;
      chunks->push_back({item.first_position, item.count});
      shape.decode_context_tokens -= item.first_position + item.count;
    }
  }
  shape.chunks = *chunks;
  shape.decodes = static_cast<int64_t>(plan.items.size() - chunks->size());
  shape.prefixes = plan.prefixes;
  shape.logit_rows = plan.logit_rows;
  shape.padded_tokens = plan.padded_tokens;
  shape.swap_blocks = static_cast<int64_t>(plan.swap_outs.size() + plan.swap_ins.size());
  return shape;
}

}  // namespace tactus
