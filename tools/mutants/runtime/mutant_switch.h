// The switch of every mutated expression. All mutants are compiled into one program; the environment selects the active
// one.
// Two ints are read before the first static initialiser runs (mutant_switch.cc), so that mutated static initialisers
// see them. On() is always inlined and never a weak symbol: a copy compiled for AVX-512 in a kernel file must not be
// linked into the whole program.
#pragma once

extern "C" {
extern int tactus_mutant_on;  // the number of the active mutant; 0: none; -1: record reached mutants
bool TactusMutantReached(int id);
}

namespace tactus_mutant {
inline constexpr int kRecords = -1;

[[gnu::always_inline]] static inline bool On(int id) {
  if (__builtin_expect(tactus_mutant_on == 0, 1)) return false;
  return tactus_mutant_on == id || (tactus_mutant_on == kRecords && TactusMutantReached(id));
}
}  // namespace tactus_mutant
