// Keys of blocks that only one sequence can have. Thread rule: engine thread only.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace tactus::core {

// Keys that no other sequence can have, such as those of a simulated request that shares no text. Its blocks are
// cached, evicted and counted like all others, but are neither hashed nor entered in the tree until the sequence loses
// them by preemption: its restart looks for them.
class OwnKeys {
 public:
  virtual ~OwnKeys() = default;
  // Full blocks of the sequence whose keys can be computed now.
  virtual int32_t KeysKnown(SlotId slot) const = 0;
  // Appends all these keys to the vector passed to Bind, which from now on grows like that of any other sequence.
  virtual void MakeKeys(SlotId slot) = 0;
};

}  // namespace tactus::core
