#include "core/seq/client_table.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/growing_vector.h"

namespace tactus::core {

ClientTable::ClientTable(int32_t most_live, int32_t most_idle, size_t note_bytes)
    : note_bytes_(note_bytes),
      free_(1 + (note_bytes > 0 ? static_cast<size_t>(most_live) + static_cast<size_t>(most_idle) : 0)) {
  TACTUS_CHECK(most_live >= 1 && most_idle >= 0);
  records_.reserve(free_.count());
  notes_.reserve(free_.count() * note_bytes_);
  MakeRecord(free_.Take());  // client 0
  if (note_bytes == 0) return;
  buckets_.assign(std::bit_ceil(free_.count()), kNoClient);
  mask_ = buckets_.size() - 1;
}

void ClientTable::MakeRecord(ClientId client) {
  const auto at = static_cast<size_t>(client);
  MakeUpTo(&records_, at);
  if (note_bytes_ > 0) MakeUpTo(&notes_, (at + 1) * note_bytes_ - 1);
}

ClientId ClientTable::Acquire(uint64_t hash) {
  if (note_bytes_ == 0) return 0;
  ClientId client = Find(hash);
  if (client == kNoClient) {
    client = Make(hash);
  } else if (At(client).sequences == 0) {
    TakeFromIdle(client);
  }
  live_ += At(client).sequences++ == 0;
  return client;
}

void ClientTable::Release(ClientId client) {
  if (note_bytes_ == 0) return;
  TACTUS_CHECK(At(client).sequences > 0);
  if (--At(client).sequences > 0) return;
  --live_;
  PushIdle(client);
}

ClientId ClientTable::Find(uint64_t hash) {
  ClientId client = BucketOf(hash);
  while (client != kNoClient && At(client).hash != hash) client = At(client).next_in_bucket;
  return client;
}

ClientId ClientTable::Make(uint64_t hash) {
  if (free_.empty()) Forget(oldest_);
  const ClientId client = free_.Take();
  MakeRecord(client);
  ClientId& head = BucketOf(hash);
  At(client) = {.hash = hash, .next_in_bucket = head};
  head = client;
  const auto begin = notes_.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(client) * note_bytes_);
  std::fill_n(begin, note_bytes_, std::byte{0});
  return client;
}

void ClientTable::Forget(ClientId client) {
  TACTUS_CHECK_MSG(client != kNoClient, "more live clients than sequences");
  TakeFromIdle(client);
  ClientId* link = &BucketOf(At(client).hash);
  while (*link != client) link = &At(*link).next_in_bucket;
  *link = At(client).next_in_bucket;
  free_.Return(client);
}

void ClientTable::PushIdle(ClientId client) {
  At(client).older = newest_;
  At(client).newer = kNoClient;
  (newest_ == kNoClient ? oldest_ : At(newest_).newer) = client;
  newest_ = client;
}

void ClientTable::TakeFromIdle(ClientId client) {
  const Record& r = At(client);
  (r.older == kNoClient ? oldest_ : At(r.older).newer) = r.newer;
  (r.newer == kNoClient ? newest_ : At(r.newer).older) = r.older;
}

}  // namespace tactus::core
