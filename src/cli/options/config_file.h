// The TOML file of --config: keys are option names, values have the option's type. Main thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/options/option_binding.h"

namespace tactus::cli {

inline constexpr int64_t kMostConfigBytes = int64_t{1} << 20;

// Sets the file's options and adds them to `already_set`; fields already in it keep their value, but a wrong type is an
// error for them too. `find` returns the field of a name or alias, or null; `names` are suggested for unknown keys.
// kInvalidArgument names file, line, key, value and the expected type.
Status ApplyConfigFile(const std::string& path, const std::function<const FieldBinding*(const std::string&)>& find,
                       const std::vector<std::string>& names, std::vector<std::string>* already_set);

}  // namespace tactus::cli
