// The one object of a test program that depends on the folder it is built in: a compiler cache serves the others to
// every clone.
#include "support/source_path.h"

namespace tactus::test {

std::string SourcePath(const std::string& relative) {
  return std::string(TACTUS_SOURCE_DIR "/") + relative;
}

}  // namespace tactus::test
