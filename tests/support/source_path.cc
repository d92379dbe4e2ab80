// The only object of a test program that depends on the build folder, so that a compiler cache can share all others
// between clones.
#include "support/source_path.h"

#include <cstdlib>

namespace tactus::test {

std::string SourcePath(const std::string& relative) {
  const char* moved = std::getenv("TACTUS_TEST_ROOT");  // on a machine without the sources (scripts/gpu.sh)
  return std::string(moved != nullptr ? moved : TACTUS_SOURCE_DIR) + "/" + relative;
}

}  // namespace tactus::test
