// A trial of a rule: it is compiled, and the masks of a beginning computed, in a process that can be ended, before the
// server's own process compiles it. llguidance's work for one rule has no bound, and cannot be interrupted. What ends
// well in a trial ends in the server too: the library does the same for the same rule and vocabulary.
//
//   server                              helper (tactus-grammar)               child, one for each trial
//     Trials::Run                         ServeTrials
//       one end of a socket pair  ---->     forks with it            ---->       reads the rule, sets its limits,
//       reads the verdict         <-------------------------------------------   compiles, writes the verdict
//                                 <----     writes what ended the child, where it wrote none
//       closes its end            ---->     kills the child
//
// The helper has the vocabulary and the library ready, so that a trial costs a fork. It has one thread. It ends with
// the server, and its children with it. Internal to grammar/.
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
    kRefused,     // `said`: by the library
    kForced,      // forced_bytes: of text that leaves no choice, too many
    kTooLong,     // it has taken its CPU time
    kTooLarge,    // or its memory
    kSlowMask,    // a mask within its first tokens takes too long: mask_ns
    kDied,        // `said`: by what
    kNoProcess,   // `said`: no process, thread or memory to try it with
    kNotStarted,  // `said`: why the helper cannot try anything
  };
  End end = End::kDied;
  int64_t forced_bytes = 0;
  int64_t bytes = 0;    // that the library holds for the compiled rule
  int64_t mask_ns = 0;  // of CPU time, of the slowest mask
  std::string said;
};

// Of CPU time, for one mask in a trial: all answers of a step wait for the slowest. Usual ones take 0.1 ms.
inline constexpr int64_t kMostMaskNs = 50'000'000;

struct TrialTask {
  int64_t cpu_ms = 0, memory_bytes = 0;  // its limits
  std::string kind, text;                // as llguidance takes them
};

// False: the other end is gone, or has no room for `look_ms` and `go_on` does not say to go on.
bool WriteTask(int fd, const TrialTask& task, int look_ms, const std::function<bool()>& go_on);
bool ReadTask(int fd, TrialTask* task);
bool WriteVerdict(int fd, const TrialVerdict& verdict);
bool ReadVerdict(int fd, TrialVerdict* verdict, int timeout_ms);

// The vocabulary without its tokeniser as bytes, for a process that this one starts.
std::string VocabularyBytes(const Vocabulary& vocabulary);
// kDataLoss: they are no vocabulary.
Result<Vocabulary> ReadVocabulary(std::string_view bytes);

// What the helper is started with: the program's first argument is the file of llguidance's library.
inline constexpr int kTrialControlFd = 3;     // the socket that brings one descriptor for each trial
inline constexpr int kTrialVocabularyFd = 4;  // a file of VocabularyBytes

// The body of the helper's main(); returns its exit status once the server, its parent, has ended. The server's number
// is an argument, because a helper whose server ends before it looks has another parent.
int ServeTrials(const std::string& library, pid_t server);

}  // namespace tactus::language
