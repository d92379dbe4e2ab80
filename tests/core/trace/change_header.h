// Changes the header of a recording, as an earlier program or another configuration would have written it.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "core/trace/trace_format.h"

namespace tactus::testing {

// `change` is called with the core::TraceHeader*.
template <class Change>
void ChangeHeader(const std::string& path, Change change) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  core::TraceCursor cursor(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  auto header = core::ReadHeader(&cursor);
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  change(&*header);
  core::TraceBytes changed;
  core::PutHeader(*header, &changed);
  changed.insert(changed.end(), bytes.begin() + static_cast<ptrdiff_t>(cursor.offset()), bytes.end());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(changed.data()), static_cast<std::streamsize>(changed.size()));
}

// Programs in which every choice of `tactus` had its model have read the times of its construction four times.
inline void RepeatStepTimesOfConstruction(const std::string& path) {
  ChangeHeader(path, [](core::TraceHeader* header) {
    const std::vector<DurationNs> once = header->step_times;
    EXPECT_FALSE(once.empty());
    for (int choice = 1; choice < 4; ++choice)
      header->step_times.insert(header->step_times.end(), once.begin(), once.end());
  });
}

}  // namespace tactus::testing
