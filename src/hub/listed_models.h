// The built-in names of well-known models (data/models/listed_models.txt): for each the repository and file that fit a
// machine's memory. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/remote_name.h"

namespace tactus::hub {

struct ListedModel {
  std::string name;          // "qwen3:0.6b"
  int64_t memory_bytes = 0;  // of the machine, from which on this row is chosen
  RemoteName remote;
};

// The rows in the file's order. `text` has one row a line: name, memory in GiB, repository, selector.
const std::vector<ListedModel>& ListedModels();
Result<std::vector<ListedModel>> ParseListedModels(std::string_view text);
std::vector<std::string> ListedNames();  // each once, in the file's order

// The row of a name for a machine with this memory (-1: not known). Of the rows that fit, the one that needs the most
// memory; one that is in the cache goes before others, so that a name does not change its model with the memory that
// happens to be free. If none fits, the smallest. Null: the name is not listed.
const ListedModel* ChooseListed(const std::vector<ListedModel>& rows, std::string_view name, int64_t memory_bytes,
                                const std::function<bool(const RemoteName&)>& is_cached);

}  // namespace tactus::hub
