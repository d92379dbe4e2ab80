// Linked into test programs that are marked ONE_THREAD. ThreadSanitizer cannot find anything in them, so
// `scripts/test.sh tsan` neither builds nor runs them. The mark must stay true: starting a thread ends the test.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

extern "C" int pthread_create(pthread_t* /*thread*/, const pthread_attr_t* /*attributes*/, void* (* /*run*/)(void*),
                              void* /*argument*/) {
  std::fputs("this test program started a thread; remove ONE_THREAD from its tactus_test() in CMakeLists.txt\n",
             stderr);
  std::abort();
}
