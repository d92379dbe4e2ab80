// Which options differ between two readings of a command's options. Main thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace tactus::cli {

// Names of the options whose lines differ between two texts of CommandLine::ConfigText, without `except` and secrets.
std::vector<std::string> ChangedOptions(std::string_view before, std::string_view after,
                                        std::initializer_list<std::string_view> except);

}  // namespace tactus::cli
