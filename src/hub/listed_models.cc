#include "hub/listed_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "base/printable.h"
#include "base/unit_text.h"
#include "hub/listed_models_text.h"

namespace tactus::hub {

Result<std::vector<ListedModel>> ParseListedModels(std::string_view text) {
  std::vector<ListedModel> rows;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string name, memory, repository, selector, more;
    fields >> name >> memory >> repository >> selector;
    double gib = 0;
    const auto remote = ParseRemoteName("hf:" + repository + ":" + selector, "");
    if (selector.empty() || fields >> more || !ParsePlainNumber(memory, &gib) || !(gib >= 0 && gib < 1e6) ||
        !remote.ok()) {
      return InvalidArgument(
          fmt::format("line {}: '{}' is not NAME MEMORY REPOSITORY SELECTOR", number, Printable(line)));
    }
    rows.push_back({name, static_cast<int64_t>(gib * (int64_t{1} << 30)), **remote});
  }
  return rows;
}

const std::vector<ListedModel>& ListedModels() {
  static const std::vector<ListedModel> rows = [] {
    auto parsed = ParseListedModels(kListedModelsText);
    TACTUS_CHECK(parsed.ok());
    return *std::move(parsed);
  }();
  return rows;
}

std::vector<std::string> ListedNames() {
  std::vector<std::string> names;
  for (const ListedModel& row : ListedModels()) {
    if (std::find(names.begin(), names.end(), row.name) == names.end()) names.push_back(row.name);
  }
  return names;
}

const ListedModel* ChooseListed(const std::vector<ListedModel>& rows, std::string_view name, int64_t memory_bytes,
                                const std::function<bool(const RemoteName&)>& is_cached) {
  const ListedModel *best = nullptr, *smallest = nullptr;
  bool best_is_cached = false;
  for (const ListedModel& row : rows) {
    if (row.name != name) continue;
    if (smallest == nullptr || row.memory_bytes < smallest->memory_bytes) smallest = &row;
    if (memory_bytes >= 0 && row.memory_bytes > memory_bytes) continue;
    const bool cached = is_cached(row.remote);
    if (best == nullptr || cached > best_is_cached ||
        (cached == best_is_cached && row.memory_bytes > best->memory_bytes)) {
      best = &row;
      best_is_cached = cached;
    }
  }
  return best != nullptr ? best : smallest;
}

}  // namespace tactus::hub
