// Reads the switch before main and before every static initialiser, and records reached mutants.
// MUTANT=n turns mutant n on. MUTANT_COVERAGE=file records reached mutants: one byte per number in a mapped file, so
// that records of killed programs and of child processes are kept. baseline.py creates the file in full size, because a
// test may start a program with a limit on file sizes. Neither name begins with TACTUS_, because tests remove such
// variables from the environment of programs that they start.
#include "mutant_switch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

extern "C" {
int tactus_mutant_on = 0;
}

namespace {
constexpr int kNumbers = 1 << 20;  // as in tools/mutants/mutation_site.py
unsigned char* reached = nullptr;

__attribute__((constructor(101))) void ReadSwitch() {
  if (const char* file = std::getenv("MUTANT_COVERAGE")) {
    const int fd = open(file, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void* mapped = mmap(nullptr, kNumbers, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) return;
    reached = static_cast<unsigned char*>(mapped);
    tactus_mutant_on = tactus_mutant::kRecords;
  } else if (const char* number = std::getenv("MUTANT")) {
    tactus_mutant_on = std::atoi(number);
  }
}
}  // namespace

extern "C" bool TactusMutantReached(int id) {
  if (reached[id] == 0) reached[id] = 1;  // reads mostly, because threads share these bytes
  return false;
}
