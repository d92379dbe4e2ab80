#include "findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "block.h"

namespace tactus::compute::cuda::emulator {
namespace {

constexpr size_t kMostFindings = 50;

struct Place {
  std::string_view kind, file, kernel;
  uint32_t line = 0;
  auto operator<=>(const Place&) const = default;
};
struct List {
  std::mutex mutex;
  std::set<Place> places;
  std::vector<std::string> texts;
};
List& TheList() {
  static List list;
  return list;
}

// True: the place is new, and the list is not full.
bool Note(const Place& place) {
  List& list = TheList();
  const std::lock_guard lock(list.mutex);
  return list.texts.size() < kMostFindings && list.places.insert(place).second;
}
void Add(std::string text) {
  List& list = TheList();
  const std::lock_guard lock(list.mutex);
  list.texts.push_back(std::move(text));
}

Place PlaceOf(const char* kind, const Where& where) {
  return {kind, where.file_name(), current == nullptr ? "" : current->block->kernel(), where.line()};
}

const char* FileName(const Where& where) {
  const char* name = where.file_name();
  for (const char* p = name; *p != 0; ++p) {
    if (*p == '/') name = p + 1;
  }
  return name;
}

}  // namespace

bool IsReported(const char* kind, const Where& where) {
  List& list = TheList();
  const std::lock_guard lock(list.mutex);
  return list.texts.size() >= kMostFindings || list.places.contains(PlaceOf(kind, where));
}

void Report(const char* kind, const Where& where, const std::string& detail) {
  if (!Note(PlaceOf(kind, where))) return;
  const Thread* t = current;
  const std::string place = fmt::format("{}:{}: {}", FileName(where), where.line(), kind);
  const std::string end = detail.empty() ? "" : ": " + detail;
  if (t == nullptr) return Add(place + end);
  const dim3 block = t->block->index();
  Add(fmt::format("{} in {}, block ({}, {}, {}), thread {}{}", place, t->block->kernel(), block.x, block.y, block.z,
                  t->id, end));
}

void ReportCall(const char* kind, const std::string& detail) {
  List& list = TheList();
  std::string text = fmt::format("{}: {}", kind, detail);
  const std::lock_guard lock(list.mutex);
  if (list.texts.size() < kMostFindings && std::find(list.texts.begin(), list.texts.end(), text) == list.texts.end()) {
    list.texts.push_back(std::move(text));
  }
}

std::vector<std::string> DrainFindings() {
  List& list = TheList();
  const std::lock_guard lock(list.mutex);
  list.places.clear();
  return std::exchange(list.texts, {});
}

}  // namespace tactus::compute::cuda::emulator
