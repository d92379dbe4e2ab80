// The TOML file of --config: its keys are option names, its values have the option's type. Main thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/options/option_binding.h"

namespace tactus::cli {

inline constexpr int64_t kMostConfigBytes = int64_t{1} << 20;

// Sets what the file says, and adds it to `already_set`; fields that were there keep what they have, but a wrong type
// is an error there too. `find` gives the field of a name or alias, null for none. kInvalidArgument names file, line,
// key, value and what is expected.
Status ApplyConfigFile(const std::string& path, const std::function<const FieldBinding*(const std::string&)>& find,
                       std::vector<std::string>* already_set);

}  // namespace tactus::cli
