// Standard input, output and error as a program may rely on them: open from the start, and written or said to be not.
// Main thread.
#pragma once

namespace tactus::cli {

// A descriptor 0, 1 or 2 that the caller closed would become the next file that is opened, and answers would be written
// into it. Such a one is put on /dev/null: input ends at once, error goes nowhere, and writing to output fails, so that
// FinishStandardOutput says so. Before anything else is opened.
void OpenStandardStreams();

// Writes out what standard output still holds. False, with a line on standard error, where not everything could be
// written, at the end or before.
bool FinishStandardOutput();

}  // namespace tactus::cli
