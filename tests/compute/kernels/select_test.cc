// The runnable kernel sets are those that the system reports for the processor.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "compute/kernels/ops.h"

namespace tactus::compute::select_test {
namespace {

#if defined(__x86_64__) && defined(__linux__)
// The flags of the first core.
std::set<std::string> Flags() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(RunnableOps, AreThoseOfTheProcessorsFlags) {
  const std::set<std::string> flags = Flags();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags";
  const auto has = [&flags](std::initializer_list<const char*> names) {
    return std::all_of(names.begin(), names.end(), [&flags](const char* name) { return flags.contains(name); });
  };
  std::set<std::string> sets;
  for (const Ops* ops : RunnableOps()) EXPECT_TRUE(sets.insert(ops->name).second) << ops->name << " twice";
  const bool avx2 = has({"avx2", "fma", "f16c"});
  EXPECT_TRUE(sets.contains("ref") && sets.contains("scalar"));
  EXPECT_EQ(sets.contains("avx2"), avx2);
  EXPECT_EQ(sets.contains("avxvnni"), avx2 && has({"avx_vnni"}));
  EXPECT_EQ(sets.contains("avx512"), avx2 && has({"avx512f", "avx512bw", "avx512vl", "avx512dq"}));
  if (sets.contains("amx")) {  // the system may refuse tiles that the processor has
    EXPECT_TRUE(has({"amx_tile", "amx_int8", "amx_bf16"}));
  }
}
#endif

}  // namespace
}  // namespace tactus::compute::select_test
