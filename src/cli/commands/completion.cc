// `tactus completion bash|zsh|fish`: a script that completes commands, options and their words. The script asks the
// program for the options of a command (--complete-options), so it need not be made again for a new version.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "cli/commands/commands.h"

namespace tactus::cli {
namespace {

// COMMANDS and PARTS are replaced: "serve route ..." and "'sim capacity'|'sim sweep'|...".
constexpr std::string_view kBash =
    R"sh(# tactus completion bash > /etc/bash_completion.d/tactus, or: source <(tactus completion bash)
_tactus() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} line flag words found
  if [ "$COMP_CWORD" -eq 1 ]; then COMPREPLY=($(compgen -W "COMMANDS" -- "$cur")); return; fi
  local command=("${COMP_WORDS[1]}")
  case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in PARTS) command+=("${COMP_WORDS[2]}") ;; esac
  while IFS=$'\t' read -r flag words _; do
    if [ "$flag" = "$prev" ] && [ -n "$words" ]; then COMPREPLY=($(compgen -W "${words//|/ }" -- "$cur")); return; fi
    found+=" $flag"
  done < <(tactus "${command[@]}" --complete-options 2>/dev/null | sed 's/\t\t/\t \t/')
  case $cur in -*) COMPREPLY=($(compgen -W "$found" -- "$cur")) ;; *) COMPREPLY=($(compgen -f -- "$cur")) ;; esac
}
complete -o filenames -F _tactus tactus
)sh";

constexpr std::string_view kZsh = R"sh(#compdef tactus
# tactus completion zsh > a folder of $fpath, as _tactus
_tactus() {
  local -a command options
  if (( CURRENT == 2 )); then compadd -- COMMANDS; return; fi
  command=($words[2])
  case "$words[2] $words[3]" in PARTS) command+=($words[3]) ;; esac
  local line
  for line in ${(f)"$(tactus $command --complete-options 2>/dev/null)"}; do
    local -a part=("${(@ps:\t:)line}")
    if [[ $part[1] == $words[CURRENT-1] && -n $part[2] ]]; then compadd -- ${(s:|:)part[2]}; return; fi
    options+=("${part[1]}:${part[3]}")
  done
  if [[ $words[CURRENT] == -* ]]; then _describe option options; else _files; fi
}
# In a folder of $fpath this file is the function; elsewhere it is sourced.
if [[ $funcstack[1] == _tactus ]]; then _tactus "$@"; else compdef _tactus tactus; fi
)sh";

constexpr std::string_view kFish = R"sh(# tactus completion fish > ~/.config/fish/completions/tactus.fish
function __tactus_options
  set -l words (commandline -opc)
  set -l command $words[2]
  switch "$words[2] $words[3]"
    case PARTS
      set command $words[2] $words[3]
  end
  tactus $command --complete-options 2>/dev/null | while read -l -d \t flag words help
    if test "$flag" = "$words[-1]"; and test -n "$words"
      string split '|' -- $words
      return
    end
    printf '%s\t%s\n' $flag $help
  end
end
complete -c tactus -n 'test (count (commandline -opc)) -eq 1' -f -a 'COMMANDS'
complete -c tactus -n 'test (count (commandline -opc)) -gt 1' -a '(__tactus_options)'
)sh";

std::string Replaced(std::string_view text, std::string_view what, const std::string& with) {
  std::string out(text);
  for (size_t at = out.find(what); at != std::string::npos; at = out.find(what, at + with.size()))
    out.replace(at, what.size(), with);
  return out;
}

}  // namespace

int CompletionCommand(const Args& args) {
  const bool bash = args.size() == 1 && args[0] == "bash", zsh = args.size() == 1 && args[0] == "zsh";
  const bool fish = args.size() == 1 && args[0] == "fish";
  if (!bash && !zsh && !fish) {
    std::fprintf(stderr, "tactus completion: give one of bash, zsh, fish; the script goes to standard output\n");
    return kExitUsage;
  }
  std::string commands, parts;
  for (const char* name : CommandNames()) commands += (commands.empty() ? "" : " ") + std::string(name);
  for (const char* part : {"models convert", "sim capacity", "sim sweep", "sim compare", "sim step", "sim chunk",
                           "route list", "route add", "route drain", "route remove"})
    parts += fmt::format("{}'{}'", parts.empty() ? "" : fish ? " " : "|", part);
  std::fputs(Replaced(Replaced(bash  ? kBash
                               : zsh ? kZsh
                                     : kFish,
                               "COMMANDS", commands),
                      "PARTS", parts)
                 .c_str(),
             stdout);
  return kExitOk;
}

}  // namespace tactus::cli
