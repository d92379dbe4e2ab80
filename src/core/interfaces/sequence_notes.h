// Notes: what policies keep about a sequence between steps. At construction a policy requests a column of its struct
// type; policies that request the same type share the column. All columns of a scheduler form one block of bytes per
// slot in the sequence table: zero at arrival, kept over preemptions. Plain data; nothing here depends on a policy.
#pragma once

#include <bit>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <typeindex>
#include <vector>

#include "base/check.h"
#include "base/units.h"

namespace tactus::core {

// The blocks of all slots: slot s has [s * stride, (s + 1) * stride).
struct SequenceNotes {
  std::byte* bytes = nullptr;
  size_t stride = 0;
};

// Offset of the T in each sequence's block.
template <class T>
class NoteColumn {
 public:
  explicit NoteColumn(size_t offset) : offset_(offset) {}
  // Precondition: the table was made for the layout that the column comes from.
  T& At(const SequenceNotes& notes, SlotId slot) const {
    TACTUS_DCHECK(offset_ + sizeof(T) <= notes.stride);
    return *std::launder(reinterpret_cast<T*>(notes.bytes + static_cast<size_t>(slot) * notes.stride + offset_));
  }

 private:
  size_t offset_;
};

class NoteLayout {
 public:
  // The column of T, added on the first request.
  template <class T>
  NoteColumn<T> Column() {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T>,
                  "a note is plain data and zero at arrival: it owns nothing and its members have no initialisers");
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__, "the blocks lie in memory of operator new");
    if (const auto found = Find<T>()) return *found;
    const size_t offset = RoundUp(size_, alignof(T));
    columns_.push_back({typeid(T), offset});
    size_ = offset + sizeof(T);
    return NoteColumn<T>(offset);
  }
  template <class T>
  std::optional<NoteColumn<T>> Find() const {
    for (const Placed& column : columns_) {
      if (column.type == typeid(T)) return NoteColumn<T>(column.offset);
    }
    return std::nullopt;
  }
  // An object shared by the policies of the scheduler: one per type T, constructed with the first request's arguments.
  template <class T, class... Args>
  std::shared_ptr<T> Shared(const Args&... args) {
    for (const Common& common : common_) {
      if (common.type == typeid(T)) return std::static_pointer_cast<T>(common.object);
    }
    auto made = std::make_shared<T>(args...);
    common_.push_back({typeid(T), made});
    return made;
  }
  // Bytes of one sequence's block, rounded up so that blocks touch as few cache lines as possible.
  size_t stride() const {
    constexpr size_t kLine = 64;
    if (size_ > kLine) return RoundUp(size_, kLine);
    return size_ == 0 ? 0 : std::bit_ceil(size_);
  }

 private:
  struct Placed {
    std::type_index type;
    size_t offset;
  };
  static size_t RoundUp(size_t bytes, size_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

  struct Common {
    std::type_index type;
    std::shared_ptr<void> object;
  };

  std::vector<Placed> columns_;
  std::vector<Common> common_;
  size_t size_ = 0;
};

}  // namespace tactus::core
