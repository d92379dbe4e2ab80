// tactus-grammar: the process in which a server compiles untrusted rules of clients (language/grammar/trial.h). Started
// by the server only.
#include <cstdio>
#include <cstring>
#include <exception>

#include "base/thread_role.h"
#include "language/grammar/trial.h"
#include "tactus/version.h"

int main(int argc, char** argv) {
  int server = 0;
  if (argc != 4 || std::sscanf(argv[3], "%d", &server) != 1) {
    std::fprintf(stderr, "tactus-grammar: this program is started by a server, for structured output\n");
    return 2;
  }
  if (std::strcmp(argv[2], tactus::Version()) != 0) {
    std::fprintf(stderr,
                 "tactus-grammar: version %s does not match the server's %s; install the same version of both\n",
                 tactus::Version(), argv[2]);
    return 1;
  }
  tactus::SetThreadRole(tactus::ThreadRole::kService, "tactus-grammar");
  try {
    return tactus::language::ServeTrials(argv[1], server);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tactus-grammar: %s\n", e.what());
    return 1;
  }
}
