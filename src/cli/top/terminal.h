// The terminal of a program that draws the whole screen: the alternate screen, keys without Enter, and the terminal as
// it was before, however the program ends (but by SIGKILL).
//
// Thread rule: main thread; one object at a time. Ctrl-C and SIGTERM stay signals (cli/options/interrupt.h).
#pragma once

#include <memory>
#include <string>

#include "cli/top/live_text.h"

namespace tactus::cli {

class Terminal {
 public:
  struct Size {
    int columns = 80, lines = 24;
    bool operator==(const Size&) const = default;
  };

  // Whether standard output is a terminal with control sequences.
  static bool Usable();
  // Whether texts in UTF-8 are shown, by the locale of the environment.
  static bool ShowsUtf8();

  Terminal();   // precondition: Usable()
  ~Terminal();  // as it was before
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  Size size() const;
  // The bytes that were typed since the last call; Ctrl-Z is a byte. Never waits. Sets closed() at the end of input.
  std::string Typed();
  bool closed() const { return closed_; }
  // Shows these lines from the top; what is left of the screen becomes empty. False: it cannot be written.
  bool Show(const std::vector<Line>& lines, Size size);
  // Gives the terminal back and stops the process, as Ctrl-Z does; returns once it goes on. Does nothing if SIGTSTP was
  // ignored at the start, as for a program without a shell that would continue it.
  void Suspend();
  // True: SIGTSTP came since the last call; then call Suspend.
  bool TakeStop();
  // True: the process went on after another stop (SIGSTOP) since the last call; then call Take.
  bool TakeContinue();
  // Takes the terminal again, whose settings and screen may be another program's by now.
  void Take() { Enter(); }

 private:
  void Enter();
  void Leave();

  const bool colours_;
  bool closed_ = false, stoppable_ = false;
};

}  // namespace tactus::cli
