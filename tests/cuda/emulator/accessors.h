// The accessors of compute/cuda/kernels/device.h, checked. An access that is refused reads poison (all bits 1) and
// writes nothing.
#pragma once

#include <cstring>
#include <mutex>
#include <type_traits>

#include "block.h"
#include "memory.h"

namespace tactus::compute::cuda {
namespace emulator {

// An index, and the place in the source that has it.
struct Index {
  int64_t value;
  Where where;
  Index(int64_t v, Where w = Where::current()) : value(v), where(w) {}  // NOLINT(google-explicit-constructor)
};

template <class V>
V Poison() {
  V v;
  std::memset(static_cast<void*>(&v), 0xff, sizeof v);
  return v;
}

[[gnu::noinline, gnu::cold]] void ReportBounds(const Allocation* a, bool writes, int64_t index, int64_t elements,
                                               const Where& where);
[[gnu::noinline, gnu::cold]] void ReportSharedBounds(bool writes, int64_t index, int64_t elements, const Where& where);
[[gnu::noinline, gnu::cold]] void ReportAlignment(int64_t bytes, const Where& where);

// What `x[i]` is where it may be written: an element that is read by conversion and written by assignment, once.
template <class Accessor>
class Reference {
 public:
  using Value = typename Accessor::Value;
  Reference(const Accessor& a, const Index& i) : accessor_(a), index_(i) {}
  Reference(const Reference&) = delete;
  operator Value() && {  // NOLINT(google-explicit-constructor)
    return accessor_.template Load<Value>(index_.value, index_.where);
  }
  void operator=(Value v) && { accessor_.template Store<Value>(index_.value, v, index_.where); }
  void operator=(Reference&& from) && {
    static_cast<Reference&&>(*this) = static_cast<Value>(static_cast<Reference&&>(from));
  }
  template <class Other>
  void operator=(Reference<Other>&& from) && {
    static_cast<Reference&&>(*this) = static_cast<Value>(static_cast<typename Other::Value>(std::move(from)));
  }

 private:
  const Accessor& accessor_;
  const Index index_;
};

// A card's atomic additions of f32 in device memory, though not in shared memory, take subnormal numbers as 0.
template <class T>
T WithoutSubnormal(T v) {
  if constexpr (std::is_same_v<T, float>) return fabsf(v) < 0x1p-126f ? copysignf(0.0f, v) : v;
  return v;
}

std::mutex& AtomicMutex(const void* address);

}  // namespace emulator

// Device memory: `elements` elements from `at`, or all to the end of the allocation.
template <class T>
class Global {
 public:
  using Value = std::remove_const_t<T>;
  T* p;

  Global(T* at = nullptr, int64_t elements = -1, emulator::Where where = emulator::Where::current())  // NOLINT
      : p(at) {
    if (at == nullptr) return;
    memory_ = emulator::FindAllocation(at);
    if (memory_ == nullptr) {
      emulator::Report("accessor of an address that is not device memory", where);
      return;
    }
    first_ = reinterpret_cast<const char*>(at) - memory_->address;
    const int64_t rest = (memory_->bytes - first_) / static_cast<int64_t>(sizeof(T));
    elements_ = elements < 0 ? rest : elements;
    if (elements > rest) {
      emulator::ReportBounds(memory_, false, elements, rest, where);
      elements_ = rest;
    }
    if (first_ % static_cast<int64_t>(alignof(T)) != 0) emulator::ReportAlignment(alignof(T), where);
  }

  decltype(auto) operator[](emulator::Index i) const {
    if constexpr (std::is_const_v<T>) {
      return Load<Value>(i.value, i.where);
    } else {
      return emulator::Reference<Global>(*this, i);
    }
  }
  template <class V>
  [[gnu::always_inline]] V Load(int64_t i, emulator::Where where = emulator::Where::current()) const {
    const int64_t offset = first_ + i * static_cast<int64_t>(sizeof(T));
    if (!Allows<V>(i, offset, false, where)) return emulator::Poison<V>();
    memory_->shadow->template Read<sizeof(V)>(
        offset, emulator::current->moment, std::is_const_v<T> ? emulator::kReadOnly : 0, where, memory_->name.c_str());
    V v;
    std::memcpy(static_cast<void*>(&v), memory_->data + offset, sizeof v);
    return v;
  }
  template <class V>
  [[gnu::always_inline]] void Store(int64_t i, V v, emulator::Where where = emulator::Where::current()) const {
    static_assert(!std::is_const_v<T>);
    const int64_t offset = first_ + i * static_cast<int64_t>(sizeof(T));
    if (!Allows<V>(i, offset, true, where)) return;
    memory_->shadow->template Write<sizeof(V)>(offset, emulator::current->moment, where, memory_->name.c_str());
    std::memcpy(memory_->data + offset, static_cast<const void*>(&v), sizeof v);
  }
  T AtomicAdd(int64_t i, T v, emulator::Where where = emulator::Where::current()) const {
    const auto add = [v](T old) {
      using emulator::WithoutSubnormal;
      return WithoutSubnormal(static_cast<T>(WithoutSubnormal(old) + WithoutSubnormal(v)));
    };
    return Atomic(i, add, where);
  }
  T AtomicMax(int64_t i, T v, emulator::Where where = emulator::Where::current()) const {
    return Atomic(i, [v](T old) { return old < v ? v : old; }, where);
  }
  bool exists() const { return p != nullptr; }

  // 16 bytes, for instructions that read memory themselves. Null: refused.
  const char* Source16(int64_t i, const emulator::Where& where) const {
    const int64_t offset = first_ + i * static_cast<int64_t>(sizeof(T));
    if (i < 0 || memory_ == nullptr || i * static_cast<int64_t>(sizeof(T)) + 16 > Bytes()) {
      emulator::ReportBounds(memory_, false, i, elements_, where);
      return nullptr;
    }
    if (offset % 16 != 0) emulator::ReportAlignment(16, where);
    memory_->shadow->Read<16>(offset, emulator::current->moment, 0, where, memory_->name.c_str());
    return memory_->data + offset;
  }

 private:
  int64_t Bytes() const {
    return memory_->bytes == 0 ? 0 : elements_ * static_cast<int64_t>(sizeof(T));  // 0: freed
  }
  template <class V>
  bool Allows(int64_t i, int64_t offset, bool writes, const emulator::Where& where) const {
    static_assert(sizeof(V) % sizeof(T) == 0 || sizeof(T) % sizeof(V) == 0);
    if (i < 0 || memory_ == nullptr ||
        i * static_cast<int64_t>(sizeof(T)) + static_cast<int64_t>(sizeof(V)) > Bytes()) {
      emulator::ReportBounds(memory_, writes, i, elements_, where);
      return false;
    }
    if (offset % static_cast<int64_t>(alignof(V)) != 0) {
      emulator::ReportAlignment(alignof(V), where);
      return false;
    }
    return true;
  }
  template <class Change>
  T Atomic(int64_t i, Change change, const emulator::Where& where) const {
    static_assert(sizeof(T) % 4 == 0);
    const int64_t offset = first_ + i * static_cast<int64_t>(sizeof(T));
    if (!Allows<T>(i, offset, true, where)) return emulator::Poison<T>();
    memory_->shadow->Atomic(offset, sizeof(T), emulator::current->moment, where, memory_->name.c_str());
    char* at = memory_->data + offset;
    const std::lock_guard lock(emulator::AtomicMutex(at));
    T old;
    std::memcpy(&old, at, sizeof old);
    const T changed = change(old);
    std::memcpy(at, &changed, sizeof changed);
    return old;
  }

  emulator::Allocation* memory_ = nullptr;
  int64_t first_ = 0, elements_ = 0;
};

// Memory of the block.
template <class T>
class Shared {
 public:
  using Value = T;
  T* p;

  explicit Shared(T* at, int elements, emulator::Where where = emulator::Where::current())
      : p(at), elements_(elements) {
    const emulator::Block& b = *emulator::current->block;
    const int64_t first = Offset(0), fit = (b.shared_used() - first) / static_cast<int64_t>(sizeof(T));
    if (first < 0 || elements > fit) {
      emulator::ReportSharedBounds(false, elements, fit, where);
      elements_ = 0;
    }
  }
  emulator::Reference<Shared> operator[](emulator::Index i) const { return {*this, i}; }
  template <class V>
  [[gnu::always_inline]] V Load(int64_t i, emulator::Where where = emulator::Where::current()) const {
    if (!Allows<V>(i, false, where)) return emulator::Poison<V>();
    emulator::Block& b = *emulator::current->block;
    b.shadow().template Read<sizeof(V)>(Offset(i), emulator::current->moment, 0, where, "shared memory");
    V v;
    std::memcpy(static_cast<void*>(&v), p + i, sizeof v);
    return v;
  }
  template <class V>
  [[gnu::always_inline]] void Store(int64_t i, V v, emulator::Where where = emulator::Where::current()) const {
    if (!Allows<V>(i, true, where)) return;
    emulator::Block& b = *emulator::current->block;
    b.shadow().template Write<sizeof(V)>(Offset(i), emulator::current->moment, where, "shared memory");
    std::memcpy(static_cast<void*>(p + i), static_cast<const void*>(&v), sizeof v);
  }
  // 16 bytes.
  T* At(int64_t i, emulator::Where where = emulator::Where::current()) const {
    if (i < 0 || i * static_cast<int64_t>(sizeof(T)) + 16 > elements_ * static_cast<int64_t>(sizeof(T))) {
      emulator::ReportSharedBounds(false, i, elements_, where);
      return p;
    }
    return p + i;
  }
  T AtomicAdd(int64_t i, T v, emulator::Where where = emulator::Where::current()) const {
    return Atomic(i, [v](T old) { return static_cast<T>(old + v); }, where);
  }
  T AtomicMax(int64_t i, T v, emulator::Where where = emulator::Where::current()) const {
    return Atomic(i, [v](T old) { return old < v ? v : old; }, where);
  }

 private:
  int64_t Offset(int64_t i) const { return reinterpret_cast<char*>(p + i) - emulator::current->block->shared(); }
  template <class V>
  bool Allows(int64_t i, bool writes, const emulator::Where& where) const {
    static_assert(sizeof(V) % sizeof(T) == 0 || sizeof(T) % sizeof(V) == 0);
    if (i < 0 || (i * static_cast<int64_t>(sizeof(T)) + static_cast<int64_t>(sizeof(V))) >
                     elements_ * static_cast<int64_t>(sizeof(T))) {
      emulator::ReportSharedBounds(writes, i, elements_, where);
      return false;
    }
    if (Offset(i) % static_cast<int64_t>(alignof(V)) != 0) {
      emulator::ReportAlignment(alignof(V), where);
      return false;
    }
    return true;
  }
  template <class Change>
  T Atomic(int64_t i, Change change, const emulator::Where& where) const {
    static_assert(sizeof(T) % 4 == 0);
    if (!Allows<T>(i, true, where)) return emulator::Poison<T>();
    emulator::current->block->shadow().Atomic(Offset(i), sizeof(T), emulator::current->moment, where, "shared memory");
    const T old = p[i];
    p[i] = change(old);
    return old;
  }

  int64_t elements_;
};

#define TACTUS_SHARED(T, name, N)                                                                                    \
  static const char name##_key = 0;                                                                                  \
  const ::tactus::compute::cuda::Shared<T> name(                                                                     \
      reinterpret_cast<T*>(::tactus::compute::cuda::emulator::current->block->StaticShared(                          \
          &name##_key, static_cast<int64_t>(sizeof(T)) * (N), ::tactus::compute::cuda::emulator::Where::current())), \
      (N))

template <class T>
Shared<T> DynamicShared(int byte_offset, int elements, emulator::Where where = emulator::Where::current()) {
  emulator::Block& b = *emulator::current->block;
  int64_t fit = (b.dynamic_bytes() - byte_offset) / static_cast<int64_t>(sizeof(T));
  if (byte_offset < 0 || byte_offset % 16 != 0) {
    emulator::ReportAlignment(16, where);
    byte_offset = 0;
    fit = 0;
  }
  if (elements > fit) emulator::ReportSharedBounds(false, elements, fit, where);
  return Shared<T>(reinterpret_cast<T*>(b.shared() + byte_offset), static_cast<int>(elements > fit ? fit : elements));
}

}  // namespace tactus::compute::cuda
