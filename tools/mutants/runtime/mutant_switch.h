// The switch that every mutated expression asks. All mutants are compiled into one program; the environment names the
// one that is on.
//
// Two ints are read before the first static initialiser runs (mutant_switch.cc), so mutated code in static initialisers
// sees them. On() is always inlined and never a weak symbol: a kernel file compiled for AVX-512 must not lend its copy
// to the whole program.
#pragma once

extern "C" {
extern int tactus_mutant_on;  // the number of the mutant that is on; 0: none; -1: note what is reached
bool TactusMutantReached(int id);
}

namespace tactus_mutant {
inline constexpr int kRecords = -1;

[[gnu::always_inline]] static inline bool On(int id) {
  if (__builtin_expect(tactus_mutant_on == 0, 1)) return false;
  return tactus_mutant_on == id || (tactus_mutant_on == kRecords && TactusMutantReached(id));
}
}  // namespace tactus_mutant
