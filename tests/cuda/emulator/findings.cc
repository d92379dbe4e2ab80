#include "findings.h"

#include <fmt/format.h>

#include <mutex>
#include <set>

#include "block.h"

namespace tactus::compute::cuda::emulator {
namespace {

constexpr size_t kMostFindings = 50;

struct List {
  std::mutex mutex;
  std::set<std::string> places;
  std::vector<std::string> texts;
};
List& TheList() {
  static List list;
  return list;
}

void Add(const std::string& place, const std::string& text) {
  List& list = TheList();
  const std::lock_guard lock(list.mutex);
  if (list.texts.size() < kMostFindings && list.places.insert(place).second) list.texts.push_back(text);
}

const char* FileName(const Where& where) {
  const char* name = where.file_name();
  for (const char* p = name; *p != 0; ++p) {
    if (*p == '/') name = p + 1;
  }
  return name;
}

}  // namespace

void Report(const char* kind, const Where& where, const std::string& detail) {
  const std::string place = fmt::format("{}:{}", FileName(where), where.line());
  const Thread* t = current;
  if (t == nullptr) {
    Add(std::string(kind) + place, fmt::format("{}: {} {}", place, kind, detail));
    return;
  }
  const dim3 block = t->block->index();
  Add(fmt::format("{} {} {}", kind, place, t->block->kernel()),
      fmt::format("{}: {} in {}, block ({}, {}, {}), thread {}{}{}", place, kind, t->block->kernel(), block.x, block.y,
                  block.z, t->id, detail.empty() ? "" : ": ", detail));
}

void ReportCall(const char* kind, const std::string& detail) {
  const std::string text = fmt::format("{}: {}", kind, detail);
  Add(text, text);
}

std::vector<std::string> DrainFindings() {
  List& list = TheList();
  const std::lock_guard lock(list.mutex);
  list.places.clear();
  return std::exchange(list.texts, {});
}

}  // namespace tactus::compute::cuda::emulator
