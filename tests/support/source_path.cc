// The only object of a test program that depends on the build folder, so that a compiler cache can share all others
// between clones.
#include "support/source_path.h"

namespace tactus::test {

std::string SourcePath(const std::string& relative) {
  return std::string(TACTUS_SOURCE_DIR "/") + relative;
}

}  // namespace tactus::test
