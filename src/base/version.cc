#include "tactus/version.h"

namespace tactus {

const char* Version() {
  return TACTUS_VERSION;
}

std::string BuildInfo() {
  std::string info = "compiler ";
#if defined(__clang__)
  info += "clang " __clang_version__;
#elif defined(__GNUC__)
  info += "gcc " __VERSION__;
#endif
  info += ", build " TACTUS_BUILD_TYPE;
  info += ", commit " TACTUS_COMMIT;
  return info;
}

}  // namespace tactus
