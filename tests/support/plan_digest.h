// A digest of all plans of a test case, in GoogleTest's report (--gtest_output=json); bench/plan_hashes.py compares it
// between two builds.
#pragma once

#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <string>

#include "base/hash.h"

namespace tactus {

// Call once per run of a step loop, with its plan hash; one thread.
inline void RecordPlans(uint64_t plan_hash) {
  static std::string test;
  static uint64_t digest = 0;
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  if (info == nullptr) return;
  const std::string name = std::string(info->test_suite_name()) + "." + info->name();
  if (name != test) digest = 0;
  test = name;
  digest = MixHash(digest, plan_hash);
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, digest);
  ::testing::Test::RecordProperty("plans", text);
}

}  // namespace tactus
