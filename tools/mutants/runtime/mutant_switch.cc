// Reads the switch before main and before every static initialiser, and notes reached mutants.
//
// MUTANT=n turns mutant n on. MUTANT_COVERAGE=file notes which mutants are reached: one byte per number in a file that
// is mapped, so that what a killed program or a child of it reached is there too. baseline.py makes the file, in its
// whole size: a test may start a program under a limit on file sizes. Neither name begins with TACTUS_: tests take such
// names out of the environment of the programs that they start.
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
  if (reached[id] == 0) reached[id] = 1;  // reads mostly: threads share these bytes
  return false;
}
