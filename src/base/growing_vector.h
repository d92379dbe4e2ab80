// Vectors that reserve room for all their elements at once and make them as they are needed: nothing moves, and memory
// is used as indices are. Thread rule: as std::vector.
#pragma once

#include <cstddef>

#include "base/check.h"
#include "base/small_pages.h"

namespace tactus {

// An empty vector with room for `count` elements. `lean`: in small pages even if it is large, so that it takes memory
// only where it is used.
template <class Vector>
Vector RoomFor(size_t count, bool lean = false) {
  Vector vector;
  vector.reserve(count);
  if (lean) AvoidHugePages(vector.data(), count);
  return vector;
}

// Makes the elements up to `index`. Precondition: the vector has room for them.
template <class Vector>
void MakeUpTo(Vector* vector, size_t index) {
  if (index < vector->size()) [[likely]]
    return;
  TACTUS_CHECK(index < vector->capacity());
  vector->resize(index + 1);
}

}  // namespace tactus
