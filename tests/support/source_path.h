// Where the sources lie: tests read the project's own data and documents.
#pragma once

#include <string>

namespace tactus::test {

std::string SourcePath(const std::string& relative);

}  // namespace tactus::test
