#include "base/thread_role.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace tactus {
namespace {

struct Seen {
  int nice = 0;
  std::string name;
};

Seen InRole(ThreadRole role, const char* name) {
  Seen seen;
  std::thread([&] {
    SetThreadRole(role, name);
    char text[16] = {};
    pthread_getname_np(pthread_self(), text, sizeof text);
    seen = {getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid))), text};
  }).join();
  return seen;
}

TEST(ThreadRole, ServiceThreadsYieldToComputingOnesAndOthersKeepTheirPriority) {
  const int before = getpriority(PRIO_PROCESS, 0);
  const Seen service = InRole(ThreadRole::kService, "tactus-http");
  const Seen compute = InRole(ThreadRole::kCompute, "tactus-compute");
  EXPECT_EQ(service.nice, before < 10 ? 10 : before);
  EXPECT_EQ(service.name, "tactus-http");
  EXPECT_EQ(compute.nice, before);
  EXPECT_EQ(compute.name, "tactus-compute");
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), before);
}

}  // namespace
}  // namespace tactus
