// The helper's side of trials: language/grammar/trial.h.
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/thread_cpu.h"
#include "language/grammar/library_heap.h"
#include "language/grammar/llg_vocabulary.h"
#include "language/grammar/trial.h"

namespace tactus::language {
namespace {

using End = TrialVerdict::End;

// Stack of a thread that runs an answer: a mask that recurses deeper than a step's thread allows fails here.
constexpr size_t kMaskStackBytes = size_t{1} << 20;
// CPU time after which a compilation is unusual and yields to new ones.
constexpr int64_t kUsualMs = 100;
constexpr int kLowestPriority = 19;
constexpr int kServerLookMs = 1000;  // checks for the server's end, where the kernel does not report it

// --- the child ---

pid_t compiling_thread = 0;

void YieldToOthers(int) {
  setpriority(PRIO_PROCESS, static_cast<id_t>(compiling_thread), kLowestPriority);
}

void After(int timer, int64_t ms) {
  constexpr int64_t kPerSecond = 1000;
  itimerval when{};
  when.it_value.tv_sec = ms / kPerSecond;
  when.it_value.tv_usec = static_cast<suseconds_t>(ms % kPerSecond * kPerSecond);
  setitimer(timer, &when, nullptr);
}

// From here on SIGPROF ends the process when its time is up, and it gets no more memory.
void SetOwnLimits(const TrialTask& task) {
  compiling_thread = static_cast<pid_t>(syscall(SYS_gettid));
  signal(SIGVTALRM, &YieldToOthers);
  signal(SIGPROF, SIG_DFL);
  After(ITIMER_VIRTUAL, kUsualMs);
  After(ITIMER_PROF, std::max<int64_t>(1, task.cpu_ms));
  uint64_t pages = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "re"); file != nullptr) {
    if (std::fscanf(file, "%lu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  if (pages == 0) return;
  const auto bytes =
      static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + static_cast<rlim_t>(task.memory_bytes);
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, bytes);
  limit.rlim_max = limit.rlim_cur;
  setrlimit(RLIMIT_AS, &limit);
}

// The work is done: a signal now would cut off the verdict.
void EndOwnLimits() {
  signal(SIGPROF, SIG_IGN);
  After(ITIMER_VIRTUAL, 0);
  After(ITIMER_PROF, 0);
}

// Runs it on a thread with this stack size. False: no such thread.
template <class Run>
bool OnStack(size_t stack_bytes, Run run) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_t thread;
  void* (*const main)(void*) = [](void* given) -> void* {
    (*static_cast<Run*>(given))();
    return nullptr;
  };
  const bool started =
      pthread_attr_setstacksize(&attributes, stack_bytes) == 0 && pthread_create(&thread, &attributes, main, &run) == 0;
  pthread_attr_destroy(&attributes);
  return started && pthread_join(thread, nullptr) == 0;
}

// Computes the masks before the first tokens of an answer sampled from them, and the time of the slowest.
class Walk {
 public:
  explicit Walk(const LlgVocabulary& vocabulary) : vocabulary_(vocabulary), mask_(vocabulary.mask_words()) {}

  // Computes the next mask, if the rule has one.
  bool Step(Matcher* matcher) {
    const int64_t begin_ns = ThreadCpuNs();
    const bool filled = matcher->FillMask(mask_.data(), mask_.size());
    slowest_ns_ = std::max(slowest_ns_, ThreadCpuNs() - begin_ns);
    return filled;
  }
  void Go(Matcher* matcher) {
    constexpr uint32_t kTokens = 12;
    const LlgFunctions& llg = matcher->llg();
    for (uint32_t i = 0; i < kTokens && slowest_ns_ <= kMostMaskNs && Step(matcher); ++i) {
      if (llg.matcher_is_stopped(matcher->get())) return;
      const TokenId token = Drawn(i);
      if (token < 0 || llg.matcher_consume_token(matcher->get(), static_cast<uint32_t>(token)) != 0) return;
    }
  }
  int64_t slowest_ns() const { return slowest_ns_; }

 private:
  // A token of the mask; -1: only end tokens, or none found.
  TokenId Drawn(uint32_t step) const {
    constexpr uint32_t kTries = 8;
    uint32_t count = 0;
    for (const uint32_t word : mask_) count += static_cast<uint32_t>(std::popcount(word));
    for (uint32_t i = 0; i < std::min(count, kTries); ++i) {
      const TokenId token = Nth((Philox4x32({step, 0}, {0, 0, 0, 0})[0] + i) % count);
      if (!vocabulary_.IsEnd(token)) return token;
    }
    return -1;
  }
  // Precondition: the mask has more than `n` tokens.
  TokenId Nth(uint32_t n) const {
    for (size_t i = 0; i < mask_.size(); ++i) {
      uint32_t word = mask_[i];
      const auto here = static_cast<uint32_t>(std::popcount(word));
      if (n >= here) {
        n -= here;
        continue;
      }
      for (; n > 0; --n) word &= word - 1;
      return static_cast<TokenId>(i * 32 + static_cast<size_t>(std::countr_zero(word)));
    }
    return -1;
  }

  const LlgVocabulary& vocabulary_;
  std::vector<uint32_t> mask_;
  int64_t slowest_ns_ = 0;
};

TrialVerdict Try(const std::shared_ptr<const LlgVocabulary>& vocabulary, const TrialTask& task) {
  TrialVerdict verdict;
  int64_t bytes = 0;
  const HeapCharge charge(&bytes);
  const auto matcher = Matcher::Of(vocabulary, task.kind.c_str(), task.text);
  // The first mask is part of the work that a rule can cause, and every answer starts with it.
  Walk walk(*vocabulary);
  if (matcher->error() == nullptr) (void)walk.Step(matcher.get());
  verdict.forced_bytes = matcher->forced_bytes();
  if (verdict.forced_bytes > kMostForcedBytes) {
    verdict.end = End::kForced;
  } else if (const char* error = matcher->error(); error != nullptr) {
    verdict.end = End::kRefused;
    verdict.said = error;
  } else {
    verdict.bytes = bytes;
    const bool walked = OnStack(kMaskStackBytes, [&] { walk.Go(matcher->Clone().get()); });
    verdict.mask_ns = walk.slowest_ns();
    verdict.end = !walked ? End::kTooLarge : verdict.mask_ns > kMostMaskNs ? End::kSlowMask : End::kCompiled;
  }
  return verdict;
}

[[noreturn]] void RunChild(const std::shared_ptr<const LlgVocabulary>& vocabulary, const Status& ready, int end,
                           pid_t helper) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != helper) _exit(0);
  constexpr int kEnd = 3;
  if (end != kEnd) dup2(end, kEnd);
  close_range(kEnd + 1, ~0U, 0);
  // The library prints there what went wrong with a client's rule.
  if (const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC); nothing >= 0) dup2(nothing, STDERR_FILENO);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);

  TrialTask task;
  TrialVerdict verdict;
  try {
    if (!ReadTask(kEnd, &task)) _exit(0);
    if (!ready.ok()) {
      verdict.end = End::kNotStarted;
      verdict.said = ready.message();
    } else if (!OnStack(kCompileStackBytes, [&] {
                 SetOwnLimits(task);
                 try {
                   verdict = Try(vocabulary, task);
                 } catch (const std::bad_alloc&) {
                   verdict = {.end = End::kTooLarge, .said = {}};
                 }
                 EndOwnLimits();
                 WriteVerdict(kEnd, verdict);
                 _exit(0);
               })) {
      verdict.end = End::kNoProcess;
      verdict.said = "no thread for the compilation";
    }
  } catch (const std::bad_alloc&) {
    verdict = {.end = End::kNoProcess, .said = {}};
  }
  WriteVerdict(kEnd, verdict);
  _exit(0);
}

// --- the helper ---

struct RunningTrial {
  pid_t child = -1;
  Descriptor end;
  bool killed = false;
};

std::string ReadWhole(int fd) {
  struct stat about = {};
  if (fstat(fd, &about) != 0) return {};
  std::string bytes(static_cast<size_t>(about.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

// Resident bytes of this process.
int64_t OwnBytes() {
  uint64_t pages = 0, resident = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "re"); file != nullptr) {
    if (std::fscanf(file, "%lu %lu", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return static_cast<int64_t>(resident) * sysconf(_SC_PAGESIZE);
}

// Verdict for a child that has written none.
TrialVerdict WhatEnded(int status, const rusage& usage) {
  constexpr int64_t kKiB = 1024, kMuch = 8 << 20;
  TrialVerdict verdict;
  const int by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (by == SIGPROF || by == SIGXCPU) {
    verdict.end = End::kTooLong;
  } else if (by == SIGKILL) {  // not sent by the helper
    verdict.end = End::kNoProcess;
    verdict.said = "the kernel killed it, as when memory is short";
  } else if (by == SIGABRT && usage.ru_maxrss * kKiB - OwnBytes() > kMuch) {
    verdict.end = End::kTooLarge;  // Rust aborts when an allocation fails
  } else {
    verdict.said = by != 0 ? strsignal(by) : fmt::format("exit status {}", WEXITSTATUS(status));
  }
  return verdict;
}

class Host {
 public:
  Host(const std::string& library, pid_t server) : server_(server) {
    // The end of the control socket is no indication: another process may hold it, such as one forked by the server.
    server_ends_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, server_, 0)));
    ready_ = Load(library);
  }

  void Run() {
    sigset_t none;
    sigemptyset(&none);
    while (getppid() == server_) {
      std::vector<pollfd> polled = {{kTrialControlFd, POLLIN, 0}, {server_ends_.get(), POLLIN, 0}};
      for (const RunningTrial& trial : running_) polled.push_back({trial.killed ? -1 : trial.end.get(), POLLRDHUP, 0});
      const timespec look{kServerLookMs / 1000, 0};
      const int count = ppoll(polled.data(), polled.size(), server_ends_.open() ? nullptr : &look, &none);
      if (count < 0 && errno != EINTR) break;
      if (count > 0) {
        if (polled[1].revents != 0) break;
        for (size_t i = 0; i < running_.size(); ++i) {
          if (polled[i + 2].revents == 0) continue;
          kill(running_[i].child, SIGKILL);
          running_[i].killed = true;
        }
        if (polled[0].revents != 0 && !Begin()) break;
      }
      Reap();
    }
    for (const RunningTrial& trial : running_) kill(trial.child, SIGKILL);
  }

 private:
  Status Load(const std::string& library) {
    TACTUS_ASSIGN_OR_RETURN(llg_, OpenLlguidance({library}));
    CountHeapOf(reinterpret_cast<const void*>(llg_.get_version));
    TACTUS_ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadVocabulary(ReadWhole(kTrialVocabularyFd)));
    close(kTrialVocabularyFd);
    TACTUS_ASSIGN_OR_RETURN(vocabulary_, LlgVocabulary::Make(&llg_, std::move(vocabulary)));
    return Status();
  }

  // False: the server is gone.
  bool Begin() {
    RunningTrial trial;
    trial.end = ReceiveDescriptor(kTrialControlFd);
    if (!trial.end.open()) return false;
    const pid_t helper = getpid();
    trial.child = fork();
    if (trial.child == 0) RunChild(vocabulary_, ready_, trial.end.get(), helper);
    if (trial.child < 0) {
      WriteVerdict(trial.end.get(), {.end = End::kNoProcess, .said = strerror(errno)});
    } else {
      running_.push_back(std::move(trial));
    }
    return true;
  }

  void Reap() {
    std::erase_if(running_, [](const RunningTrial& trial) {
      int status = 0;
      rusage usage{};
      const pid_t ended = wait4(trial.child, &status, WNOHANG, &usage);
      if (ended == 0) return false;
      if (!trial.killed && !(ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0))
        WriteVerdict(trial.end.get(), WhatEnded(status, usage));
      return true;
    });
  }

  const pid_t server_;
  Descriptor server_ends_;
  LlgFunctions llg_{};
  std::shared_ptr<const LlgVocabulary> vocabulary_;
  Status ready_;
  std::vector<RunningTrial> running_;
};

}  // namespace

int ServeTrials(const std::string& library, pid_t server) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, [](int) {});  // interrupts the wait
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, nullptr);
  mallopt(M_ARENA_MAX, 1);  // a child's limit is on address space
  Host(library, server).Run();
  return 0;
}

}  // namespace tactus::language
