// Comparison with the record of a card's results.
#pragma once

#include <gtest/gtest.h>

#include "cuda/conformance/record.h"
#include "support/source_path.h"

namespace tactus::compute::cuda {

inline const std::map<std::string, conformance::Case>& Record() {
  static const auto record = conformance::ReadRecord(test::SourcePath("tests/cuda/conformance/results/h200.txt"));
  return record;
}

inline void ExpectRecorded(const std::string& name, const conformance::Words& words) {
  const auto found = Record().find(name);
  ASSERT_NE(found, Record().end()) << name << " is not recorded";
  const conformance::Case& want = found->second;
  ASSERT_EQ(words.size(), want.words) << name;
  for (size_t i = 0; i < want.out.size(); ++i) ASSERT_EQ(words[i], want.out[i]) << name << ", word " << i;
  EXPECT_EQ(conformance::Hash(words.data(), words.size()), want.hash) << name;
}

}  // namespace tactus::compute::cuda
