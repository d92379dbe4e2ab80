// For tests of the library that compiles rules.
#pragma once

#include <gtest/gtest.h>

#include "language/grammar/llguidance.h"

// Skips the test where the grammar library, which no build needs, is not installed. A damaged library fails it.
#define TACTUS_NEEDS_LLGUIDANCE()                                                                  \
  do {                                                                                             \
    const ::tactus::Status library = ::tactus::language::LoadLlguidance().status();                \
    if (library.code() == ::tactus::StatusCode::kUnimplemented) GTEST_SKIP() << library.message(); \
    ASSERT_TRUE(library.ok()) << library.message();                                                \
  } while (false)
