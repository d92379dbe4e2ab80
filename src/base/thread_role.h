// What a thread is for, told to the system: its name (as top and gdb show it) and, for service threads, a lower
// priority. On a machine without a GPU every core computes; HTTP, JSON, tokenising and writing must fit between, and
// never take a core away in the middle of a step that all other cores wait for.
#pragma once

namespace tactus {

enum class ThreadRole { kCompute, kEngine, kService };

// Of the calling thread; `name` at most 15 characters. Lowers priority for kService (nice +10: about a tenth of a core
// against a computing thread, all of it when there is one free); a system that refuses is no error.
void SetThreadRole(ThreadRole role, const char* name);

}  // namespace tactus
