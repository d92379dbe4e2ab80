#include "order.h"

#include <algorithm>

#include "memory.h"

namespace tactus::compute::cuda::emulator {
namespace {

struct Unordered {
  const char* name;
  uint64_t first, end;  // serials
};
// Of the work that runs. Changes between works only.
std::vector<Unordered>& TheUnordered() {
  static std::vector<Unordered> list;
  return list;
}

}  // namespace

void Join(Clock* to, const Clock& from) {
  if (to->size() < from.size()) to->resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] = std::max((*to)[i], from[i]);
}

bool Covers(const Clock& clock, int stream, uint64_t ordinal) {
  const auto i = static_cast<size_t>(stream);
  return i < clock.size() && clock[i] >= ordinal;
}

Order& Order::The() {
  static Order* order = new Order;  // streams of static objects end after it would be destroyed
  return *order;
}

int Order::NewStream() {
  if (free_streams_.empty()) {
    works_.push_back(0);
    return static_cast<int>(works_.size()) - 1;
  }
  const int stream = free_streams_.back();
  free_streams_.pop_back();
  return stream;
}

// Its works have run.
void Order::EndStream(int stream) {
  Clock all(works_.size());
  all[static_cast<size_t>(stream)] = works_[static_cast<size_t>(stream)];
  Join(&host_, all);
  free_streams_.push_back(stream);
}

void Order::Begin(const char* name, int stream, uint64_t ordinal, const Clock& after) {
  running_ = {name, stream, ordinal, NextSerial(), 0};
  std::vector<Unordered>& list = TheUnordered();
  list.clear();
  for (const Done& d : done_) {
    if (!Covers(after, d.stream, d.ordinal)) list.push_back({d.name, d.first, d.end});
  }
}

void Order::End() {
  TheUnordered().clear();
  running_.end = NextSerial();
  if (running_.end > running_.first) done_.push_back(running_);
}

void Order::Prune(const std::vector<const Clock*>& pending) {
  std::erase_if(done_, [&](const Done& d) {
    return Covers(host_, d.stream, d.ordinal) && std::all_of(pending.begin(), pending.end(), [&](const Clock* after) {
             return Covers(*after, d.stream, d.ordinal);
           });
  });
}

const char* UnorderedWork(uint64_t serial) {
  const std::vector<Unordered>& list = TheUnordered();
  const auto after =
      std::upper_bound(list.begin(), list.end(), serial, [](uint64_t s, const Unordered& u) { return s < u.first; });
  if (after == list.begin()) return nullptr;
  const Unordered& u = *std::prev(after);
  return serial < u.end ? u.name : nullptr;
}

Stamp FirstUnordered() {
  const std::vector<Unordered>& list = TheUnordered();
  return list.empty() ? ~Stamp{0} : MakeStamp(list.front().first, 0, 0);
}

}  // namespace tactus::compute::cuda::emulator
