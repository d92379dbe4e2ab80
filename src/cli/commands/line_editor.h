// The prompt of a chat on a terminal: one message, typed with editing and history, or pasted with its line breaks.
// Main thread.
#pragma once

#include <memory>
#include <string>

namespace tactus::cli {

class LineEditor {
 public:
  enum class Outcome {
    kLine,     // a message; it may have several lines
    kCleared,  // Ctrl-C threw it away
    kEnd,      // Ctrl-D or Ctrl-C on an empty line, or the terminal is gone
  };

  // Null where standard input or standard error is no terminal that can be edited on, or the program was built without
  // libedit. `history_file`: keeps the messages for the next time; empty: nothing is kept.
  static std::unique_ptr<LineEditor> Make(const std::string& history_file);
  virtual ~LineEditor() = default;

  // Shows the prompt on standard error. Keys: those of Emacs; Alt-Enter breaks the line.
  virtual Outcome Read(std::string* text) = 0;
};

}  // namespace tactus::cli
