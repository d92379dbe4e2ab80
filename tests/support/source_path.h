// Paths in the source tree, for tests that read the project's data and documents.
#pragma once

#include <string>

namespace tactus::test {

std::string SourcePath(const std::string& relative);

}  // namespace tactus::test
