// Makes standard input, output and error reliable: open from the start, with write errors reported. Main thread.
#pragma once

namespace tactus::cli {

// If the caller closed descriptor 0, 1 or 2, the next file opened would get its number, and answers would be written
// into it. Opens /dev/null in its place: input is empty, error output is discarded, and writing to output fails, so
// that FinishStandardOutput reports it. Before anything else is opened.
void OpenStandardStreams();

// Flushes standard output. False, with a line on standard error, if not everything could be written.
bool FinishStandardOutput();

}  // namespace tactus::cli
