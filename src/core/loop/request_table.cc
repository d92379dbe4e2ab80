#include "core/loop/request_table.h"

#include <utility>

#include "base/check.h"
#include "base/growing_vector.h"

namespace tactus::core {

RequestTable::RequestTable(int32_t capacity)
    : free_(static_cast<size_t>(capacity)),
      records_(RoomFor<std::vector<RequestRecord>>(free_.count())),
      buckets_(kFewestBuckets),
      mask_(buckets_.size() - 1) {}

void RequestTable::Grow() {
  const std::vector<RequestRecord*> old = std::exchange(buckets_, std::vector<RequestRecord*>(2 * buckets_.size()));
  mask_ = buckets_.size() - 1;
  for (RequestRecord* record : old) {
    if (record != nullptr) File(record);
  }
}

void RequestTable::File(RequestRecord* record) {
  size_t at = Home(record->in.handle);
  while (buckets_[at] != nullptr) at = (at + 1) & mask_;
  buckets_[at] = record;
}

RequestRecord* RequestTable::Add(PreparedRequest request) {
  TACTUS_CHECK(!free_.empty());
  const auto id = static_cast<size_t>(free_.Take());
  MakeUpTo(&records_, id);
  RequestRecord* record = &records_[id];
  *record = RequestRecord();
  record->in = std::move(request);
  if (2 * (free_.count() - free_.size()) > buckets_.size()) Grow();  // the bound counts forgotten ones too
  File(record);
  return record;
}

RequestRecord* RequestTable::Find(RequestHandle handle) const {
  for (size_t at = Home(handle); buckets_[at] != nullptr; at = (at + 1) & mask_) {
    if (buckets_[at]->in.handle == handle) return buckets_[at];
  }
  return nullptr;
}

void RequestTable::Forget(RequestHandle handle) {
  size_t hole = Home(handle);
  while (buckets_[hole] != nullptr && buckets_[hole]->in.handle != handle) hole = (hole + 1) & mask_;
  if (buckets_[hole] == nullptr) return;
  // Close the hole: move back entries that a probe could no longer reach across it.
  for (size_t at = (hole + 1) & mask_; buckets_[at] != nullptr; at = (at + 1) & mask_) {
    const size_t home = Home(buckets_[at]->in.handle);
    if (((at - home) & mask_) >= ((at - hole) & mask_)) {
      buckets_[hole] = buckets_[at];
      hole = at;
    }
  }
  buckets_[hole] = nullptr;
}

void RequestTable::Release(RequestRecord* record) {
  record->in = PreparedRequest();
  free_.Return(static_cast<int32_t>(record - records_.data()));
}

}  // namespace tactus::core
