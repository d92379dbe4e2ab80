// The prompt of a chat on a terminal: reads one message, typed with editing and history or pasted with line breaks.
// Main thread.
#pragma once

#include <memory>
#include <string>

namespace tactus::cli {

class LineEditor {
 public:
  enum class Outcome {
    kLine,     // a message; it may have several lines
    kCleared,  // Ctrl-C discarded the message
    kEnd,      // Ctrl-D or Ctrl-C on an empty line, or the terminal was closed
  };

  // Null if standard input or standard error is not a terminal with editing, or the program was built without libedit.
  // `history_file`: stores the messages for later chats; empty: nothing is stored.
  static std::unique_ptr<LineEditor> Make(const std::string& history_file);
  virtual ~LineEditor() = default;

  // Shows the prompt on standard error. Emacs key bindings; Alt-Enter inserts a line break.
  virtual Outcome Read(std::string* text) = 0;
};

}  // namespace tactus::cli
