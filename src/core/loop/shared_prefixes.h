// The prefixes that decodes of a plan read together on a device with cascade attention, for step-time models. Found
// from the block tables, as such an executor finds them. Thread rule: engine thread only.
#pragma once

#include <vector>

#include "base/prefix_groups.h"
#include "base/step.h"
#include "core/kv/kv_cache.h"

namespace tactus::core {

class SharedPrefixes {
 public:
  // `kv` outlives it.
  SharedPrefixes(const KvCache& kv, int32_t most_decodes) : kv_(kv), groups_(kv.block_size(), most_decodes) {}
  // Fills plan->prefixes. A decode with drafts counts as a chunk and shares no reads.
  void Find(StepPlan* plan);

 private:
  const KvCache& kv_;
  PrefixGroups groups_;
  std::vector<PrefixGroups::Sequence> decodes_;
};

}  // namespace tactus::core
