#include "base/thread_role.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tactus {

void SetThreadRole(ThreadRole role, const char* name) {
  constexpr int kServiceNice = 10;
  (void)pthread_setname_np(pthread_self(), name);
  if (role != ThreadRole::kService) return;
  const auto thread =
      static_cast<id_t>(syscall(SYS_gettid));  // on Linux the priority is the thread's, not the process's
  if (getpriority(PRIO_PROCESS, thread) < kServiceNice) (void)setpriority(PRIO_PROCESS, thread, kServiceNice);
}

}  // namespace tactus
