#include "order.h"

#include <algorithm>
#include <iterator>

#include "memory.h"

namespace tactus::compute::cuda::emulator {
namespace {

struct Ran {
  const char* name = "";
  int stream = 0;
  uint64_t ordinal = 0;
  uint64_t first = 0, end = 0;  // serials
};

// In the order of their serials. Changes between works only.
struct Works {
  std::vector<Ran> ran;        // those that something to come may not be ordered with
  std::vector<Ran> unordered;  // with the one that runs
  Ran running;
};
Works& TheWorks() {
  static Works* works = new Works;  // streams of static objects end after it would be destroyed
  return *works;
}

const Ran* Find(const std::vector<Ran>& list, uint64_t serial) {
  const auto after =
      std::upper_bound(list.begin(), list.end(), serial, [](uint64_t s, const Ran& r) { return s < r.first; });
  if (after == list.begin()) return nullptr;
  const Ran& r = *std::prev(after);
  return serial < r.end ? &r : nullptr;
}

}  // namespace

void Join(Clock* to, const Clock& from) {
  if (to->size() < from.size()) to->resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] = std::max((*to)[i], from[i]);
}

void Meet(Clock* to, const Clock& from) {
  if (to->size() > from.size()) to->resize(from.size());
  for (size_t i = 0; i < to->size(); ++i) (*to)[i] = std::min((*to)[i], from[i]);
}

uint64_t At(const Clock& clock, int stream) {
  const auto i = static_cast<size_t>(stream);
  return i < clock.size() ? clock[i] : 0;
}

void Advance(Clock* clock, int stream, uint64_t ordinal) {
  const auto i = static_cast<size_t>(stream);
  if (clock->size() <= i) clock->resize(i + 1);
  (*clock)[i] = std::max((*clock)[i], ordinal);
}

Order& Order::The() {
  static Order* order = new Order;
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

void Order::Begin(const char* name, const WorkPoint& point, const Clock& known) {
  Works& works = TheWorks();
  std::erase_if(works.ran, [&](const Ran& r) { return Covers(known, r.stream, r.ordinal); });
  works.unordered.clear();
  std::copy_if(works.ran.begin(), works.ran.end(), std::back_inserter(works.unordered),
               [&](const Ran& r) { return !Covers(point.after, r.stream, r.ordinal); });
  works.running = {name, point.stream, point.ordinal, NextSerial(), 0};
}

void Order::End() {
  Works& works = TheWorks();
  works.unordered.clear();
  works.running.end = NextSerial();
  if (works.running.end > works.running.first) works.ran.push_back(works.running);
}

const char* UnorderedWork(uint64_t serial) {
  const Ran* const r = Find(TheWorks().unordered, serial);
  return r == nullptr ? nullptr : r->name;
}

Stamp FirstUnordered() {
  const std::vector<Ran>& list = TheWorks().unordered;
  return list.empty() ? ~Stamp{0} : MakeStamp(list.front().first, 0, 0);
}

bool IsSameWork(uint64_t a, uint64_t b) {
  return Find(TheWorks().ran, a) == Find(TheWorks().ran, b);
}

}  // namespace tactus::compute::cuda::emulator
