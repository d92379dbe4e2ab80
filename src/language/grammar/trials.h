// The server's side of trials (language/grammar/trial.h): starts the helper, passes it rules, and restarts it after it
// has died. Internal to grammar/. Any thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "language/grammar/grammar_engine.h"
#include "language/grammar/trial.h"
#include "tactus/status.h"

namespace tactus::language {

// Candidate paths of the helper's program, in order: the file named by the environment's TACTUS_GRAMMAR_HELPER, and
// nothing else where it is set; beside the program or library with this code; bin/ beside its lib/.
std::vector<std::string> HelperPaths();

class Trials {
 public:
  // `library`: llguidance's, which the helper also loads.
  Trials(const Vocabulary& vocabulary, std::string library);
  ~Trials() { Close(); }
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

  // Starts the helper if none runs, so that the first rule need not wait for it. kUnavailable: it cannot be started,
  // with instructions.
  Status Start();
  // Tries a rule for at most `timeout_ms`, and while !given_up(), which is checked every few milliseconds; after that
  // the rule counts as kTooLong. A helper that dies is restarted once. kUnavailable: no helper; kResourceExhausted: no
  // descriptor or process for it, try again later. Blocks only the calling thread.
  Result<TrialVerdict> Run(const TrialTask& task, int64_t timeout_ms, const std::function<bool()>& given_up);
  // Ends the helper; running trials end with kUnavailable, and no helper is started afterwards.
  void Close();

  pid_t helper() const;  // -1: none runs

 private:
  struct Answer {
    bool died = false;  // the helper died
    TrialVerdict verdict;
  };
  Status StartLocked();
  void EndLocked();
  Result<Answer> RunOnce(const TrialTask& task, int64_t* left_ms, const std::function<bool()>& given_up);

  const std::string library_;
  const pid_t owner_;      // a process forked from it has no helper
  Descriptor vocabulary_;  // a file in memory
  mutable std::mutex mutex_;
  Descriptor control_;  // not open: no helper runs
  pid_t helper_ = -1;
  bool closed_ = false;
};

}  // namespace tactus::language
