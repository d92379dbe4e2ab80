#include "core/loop/request_table.h"

#include "base/check.h"

namespace tactus::core {

RequestTable::RequestTable(int32_t capacity) {
  records_.resize(static_cast<size_t>(capacity));
  free_.reserve(records_.size());
  for (size_t i = records_.size(); i-- > 0;) free_.push_back(&records_[i]);
  size_t buckets = 16;
  while (buckets < 2 * records_.size()) buckets *= 2;
  buckets_.assign(buckets, nullptr);
  mask_ = buckets - 1;
}

RequestRecord* RequestTable::Add(PreparedRequest request) {
  TACTUS_CHECK(!free_.empty());
  RequestRecord* record = free_.back();
  free_.pop_back();
  *record = RequestRecord();
  record->in = std::move(request);
  size_t at = Home(record->in.handle);
  while (buckets_[at] != nullptr) at = (at + 1) & mask_;
  buckets_[at] = record;
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
  free_.push_back(record);
}

}  // namespace tactus::core
