// Sets a thread's name (as top and gdb show it) and, for service threads, a lower priority. On a machine without a GPU
// every core computes; HTTP, JSON, tokenising and writing must not take a core during a step, because all other cores
// would wait for it.
#pragma once

namespace tactus {

enum class ThreadRole { kCompute, kEngine, kService };

// Applies to the calling thread; `name` has at most 15 characters. Lowers the priority for kService (nice +10: about a
// tenth of a core against a computing thread, a whole core if one is free); a refusal by the system is not an error.
void SetThreadRole(ThreadRole role, const char* name);

}  // namespace tactus
