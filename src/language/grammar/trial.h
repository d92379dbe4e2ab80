// A trial of a rule: a process that can be killed compiles it and computes the masks of a beginning, before the
// server's own process compiles it. llguidance's work for one rule has no bound and cannot be interrupted. A rule that
// succeeds in a trial succeeds in the server too: the library does the same for the same rule and vocabulary.
//
//   server                              helper (tactus-grammar)               child, one for each trial
//     Trials::Run                         ServeTrials
//       one end of a socket pair  ---->     forks with it            ---->       reads the rule, sets its limits,
//       reads the verdict         <-------------------------------------------   compiles, writes the verdict
//                                 <----     writes what ended the child, where it wrote none
//       closes its end            ---->     kills the child
//
// The helper keeps the vocabulary and the library loaded, so that a trial costs a fork. It has one thread. It ends with
// the server, and its children end with it. Internal to grammar/.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "language/grammar/grammar_engine.h"
#include "language/grammar/trial_channel.h"
#include "tactus/status.h"

namespace tactus::language {

struct TrialVerdict {
  enum class End : uint32_t {
    kCompiled,
    kRefused,     // `said`: the library's message
    kForced,      // too many forced_bytes of text
    kTooLong,     // it exceeded its CPU time
    kTooLarge,    // or its memory
    kSlowMask,    // one of its first masks takes too long: mask_ns
    kDied,        // `said`: the cause
    kNoProcess,   // `said`: no process, thread or memory to try it
    kNotStarted,  // `said`: why the helper cannot try rules
  };
  End end = End::kDied;
  int64_t forced_bytes = 0;
  int64_t bytes = 0;    // held by the library for the compiled rule
  int64_t mask_ns = 0;  // CPU time of the slowest mask
  std::string said;
};

// CPU time of one mask in a trial: all answers of a step wait for the slowest. Usual masks take 0.1 ms.
inline constexpr int64_t kMostMaskNs = 50'000'000;

struct TrialTask {
  int64_t cpu_ms = 0, memory_bytes = 0;  // its limits
  std::string kind, text;                // in llguidance's form
};

// False: the other end is gone, or has accepted nothing for `look_ms` and `go_on` returns false.
bool WriteTask(int fd, const TrialTask& task, int look_ms, const std::function<bool()>& go_on);
bool ReadTask(int fd, TrialTask* task);
bool WriteVerdict(int fd, const TrialVerdict& verdict);
bool ReadVerdict(int fd, TrialVerdict* verdict, int timeout_ms);

// The vocabulary without its tokeniser as bytes, for a child process.
std::string VocabularyBytes(const Vocabulary& vocabulary);
// kDataLoss: not a vocabulary.
Result<Vocabulary> ReadVocabulary(std::string_view bytes);

// Descriptors of a starting helper; the program's first argument is the file of llguidance's library.
inline constexpr int kTrialControlFd = 3;     // the socket that delivers one descriptor per trial
inline constexpr int kTrialVocabularyFd = 4;  // a file of VocabularyBytes

// The body of the helper's main(); returns its exit status once the server, its parent, has ended. The server's pid is
// an argument: if the server ends before the helper checks, the helper already has another parent.
int ServeTrials(const std::string& library, pid_t server);

}  // namespace tactus::language
