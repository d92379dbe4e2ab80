#include "cli/commands/line_editor.h"

#ifdef TACTUS_HAS_LIBEDIT
#include <histedit.h>
#include <unistd.h>

#include <climits>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <filesystem>
#include <string_view>
#endif

namespace tactus::cli {

#ifndef TACTUS_HAS_LIBEDIT

std::unique_ptr<LineEditor> LineEditor::Make(const std::string&) {
  return nullptr;
}

#else

namespace {

constexpr int kHistoryEntries = 1000;
// Bracketed paste: a terminal sends a paste between two marker sequences, so that its line breaks differ from Enter.
constexpr char kPastesMarked[] = "\033[?2004h", kPastesPlain[] = "\033[?2004l";
constexpr std::wstring_view kPasteEnds = L"\033[201~";

char* Prompt(EditLine*) {
  static char prompt[] = "> ";
  return prompt;
}

class Editor final : public LineEditor {
 public:
  explicit Editor(std::string history_file) : history_file_(std::move(history_file)) {
    editor_ = el_init("tactus", stdin, stderr, stderr);
    history_ = history_init();
    if (editor_ == nullptr || history_ == nullptr) return;
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryEntries);
    history(history_, &event, H_SETUNIQUE, 1);
    if (!history_file_.empty()) history(history_, &event, H_LOAD, history_file_.c_str());
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, Prompt);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_HIST, history, history_);
    // Ctrl-C is a key while the user types a message, and a signal while an answer is generated.
    el_set(editor_, EL_SETTY, "-d", "-isig", nullptr);
    el_set(editor_, EL_ADDFN, "tactus-interrupt", "Discard the message", &Editor::OnInterrupt);
    el_set(editor_, EL_ADDFN, "tactus-paste", "Insert the pasted text", &Editor::OnPaste);
    el_set(editor_, EL_ADDFN, "tactus-break", "Insert a line break", &Editor::OnBreak);
    el_set(editor_, EL_ADDFN, "tactus-suspend", "Suspend the program", &Editor::OnSuspend);
    el_set(editor_, EL_BIND, "^C", "tactus-interrupt", nullptr);
    el_set(editor_, EL_BIND, "^Z", "tactus-suspend", nullptr);
    el_set(editor_, EL_BIND, "\\e[200~", "tactus-paste", nullptr);
    el_set(editor_, EL_BIND, "\\e\\r", "tactus-break", nullptr);
    el_set(editor_, EL_BIND, "\\e\\n", "tactus-break", nullptr);
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    ready_ = true;
  }
  ~Editor() override {
    if (history_ != nullptr) history_end(history_);
    if (editor_ != nullptr) el_end(editor_);
  }
  bool ready() const { return ready_; }

  Outcome Read(std::string* text) override {
    interrupted_ = false;
    std::fputs(kPastesMarked, stderr);
    el_resize(editor_);  // the window size may have changed
    // Set before the prompt: otherwise the terminal handles a Ctrl-D as end of file and the editor does not get it.
    el_set(editor_, EL_PREP_TERM, 1);
    int bytes = 0;
    const char* line = el_gets(editor_, &bytes);
    std::fputs(kPastesPlain, stderr);
    std::fflush(stderr);
    if (interrupted_ && !had_text_) return Outcome::kEnd;
    if (interrupted_) return Outcome::kCleared;
    if (line == nullptr || bytes <= 0) return Outcome::kEnd;
    text->assign(line, static_cast<size_t>(bytes));
    if (text->ends_with('\n')) text->pop_back();
    Remember(*text);
    return Outcome::kLine;
  }

 private:
  static Editor* Of(EditLine* editor) {
    Editor* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return self;
  }

  static unsigned char OnInterrupt(EditLine* editor, int) {
    Editor* self = Of(editor);
    const LineInfo* line = el_line(editor);
    self->interrupted_ = true;
    self->had_text_ = line->lastchar != line->buffer;
    // Echoed as in a shell, and ended like Enter, which moves below all lines of the message.
    el_cursor(editor, INT_MAX / 2);
    el_winsertstr(editor, L"^C");
    el_push(editor, "\n");
    return CC_REFRESH;
  }
  static unsigned char OnSuspend(EditLine* editor, int) {
    el_set(editor, EL_PREP_TERM, 0);
    std::raise(SIGTSTP);
    el_set(editor, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
  }
  static unsigned char OnBreak(EditLine* editor, int) {
    return el_winsertstr(editor, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
  }
  static unsigned char OnPaste(EditLine* editor, int) {
    std::wstring pasted;
    wchar_t c = 0;
    while (!pasted.ends_with(kPasteEnds)) {
      if (el_wgetc(editor, &c) != 1) return CC_EOF;
      pasted.push_back(c);
    }
    pasted.resize(pasted.size() - kPasteEnds.size());
    std::wstring text;
    for (size_t i = 0; i < pasted.size(); ++i) {
      if (pasted[i] == L'\r') {  // terminals send line breaks as CR
        text.push_back(L'\n');
        if (i + 1 < pasted.size() && pasted[i + 1] == L'\n') ++i;
      } else if (pasted[i] == L'\n' || pasted[i] == L'\t' || (pasted[i] >= L' ' && pasted[i] != 0x7f)) {
        text.push_back(pasted[i]);
      }
    }
    while (text.ends_with(L'\n')) text.pop_back();
    if (text.empty()) return CC_REFRESH;
    return el_winsertstr(editor, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  void Remember(const std::string& text) {
    if (text.find_first_not_of(" \t\n") == std::string::npos) return;
    HistEvent event;
    history(history_, &event, H_ENTER, text.c_str());
    if (!history_file_.empty()) history(history_, &event, H_SAVE, history_file_.c_str());  // mode 0600
  }

  const std::string history_file_;
  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
  bool ready_ = false, interrupted_ = false, had_text_ = false;
};

}  // namespace

std::unique_ptr<LineEditor> LineEditor::Make(const std::string& history_file) {
  const char* kind = std::getenv("TERM");
  if (isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0 || kind == nullptr || std::string_view(kind) == "dumb")
    return nullptr;
  // Typed and pasted text is UTF-8, regardless of the locale in the environment.
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) std::setlocale(LC_CTYPE, "");
  if (!history_file.empty()) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(history_file).parent_path(), error);
  }
  auto editor = std::make_unique<Editor>(history_file);
  return editor->ready() ? std::move(editor) : nullptr;
}

#endif

}  // namespace tactus::cli
