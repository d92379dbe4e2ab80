// The server's side of trials (language/grammar/trial.h): starts the helper, brings it rules, and starts it again where
// it has died. Internal to grammar/. Any thread.
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

// Where the helper's program is looked for, in this order: the file that the environment's TACTUS_GRAMMAR_HELPER names,
// and nothing else where it is set; beside the program or library that this code is in; bin/ beside its lib/.
std::vector<std::string> HelperPaths();

class Trials {
 public:
  // `library`: llguidance's, which the helper loads as well.
  Trials(const Vocabulary& vocabulary, std::string library);
  ~Trials() { Close(); }
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

  // Starts the helper where none runs, so that the first rule need not wait for it. kUnavailable: it cannot be started,
  // with what to do.
  Status Start();
  // Tries a rule for at most `timeout_ms`, and for as long as !given_up(), which is asked every few milliseconds; then
  // the rule counts as kTooLong. A helper that dies is started again once. kUnavailable: there is none;
  // kResourceExhausted: no descriptor or process for it, try again later. Takes the calling thread's time alone.
  Result<TrialVerdict> Run(const TrialTask& task, int64_t timeout_ms, const std::function<bool()>& given_up);
  // The helper ends, and trials that run end with kUnavailable; nothing is started any more.
  void Close();

  pid_t helper() const;  // -1: none runs

 private:
  struct Answer {
    bool died = false;  // the helper
    TrialVerdict verdict;
  };
  Status StartLocked();
  void EndLocked();
  Result<Answer> RunOnce(const TrialTask& task, int64_t* left_ms, const std::function<bool()>& given_up);

  const std::string library_;
  const pid_t owner_;      // a process that is forked from it has no helper
  Descriptor vocabulary_;  // a file in memory
  mutable std::mutex mutex_;
  Descriptor control_;  // not open: no helper runs
  pid_t helper_ = -1;
  bool closed_ = false;
};

}  // namespace tactus::language
