// Compares the table of requests with a map.
#include "core/loop/request_table.h"

#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"

namespace tactus::core {
namespace {

PreparedRequest Named(RequestHandle handle) {
  PreparedRequest request;
  request.handle = handle;
  return request;
}

TEST(RequestTable, FindsExactlyTheRequestsNotForgotten) {
  constexpr int32_t kCapacity = 8;  // in 16 buckets, so that most probes collide
  constexpr RequestHandle kHandles = 200;
  RequestTable table(kCapacity);
  std::map<RequestHandle, RequestRecord*> live;
  Rng rng(1);
  for (int i = 0; i < 20000; ++i) {
    const auto handle = static_cast<RequestHandle>(rng.UniformInt(1, kHandles));
    if (const auto at = live.find(handle); at != live.end()) {
      table.Forget(handle);
      ASSERT_EQ(table.Find(handle), nullptr) << "request " << handle << " was forgotten, change " << i + 1;
      table.Release(at->second);
      live.erase(at);
    } else if (static_cast<int32_t>(live.size()) < kCapacity) {
      live[handle] = table.Add(Named(handle));
    } else {
      table.Forget(handle);  // unknown: no effect
    }
    for (RequestHandle h = 1; h <= kHandles; ++h) {
      const auto at = live.find(h);
      ASSERT_EQ(table.Find(h), at == live.end() ? nullptr : at->second)
          << "request " << h << " after " << i + 1 << " changes";
      if (at != live.end()) {
        ASSERT_EQ(at->second->in.handle, h);
      }
    }
  }
}

TEST(RequestTable, ForgottenRecordStaysUntilRelease) {
  RequestTable table(2);
  RequestRecord* first = table.Add(Named(7));
  first->completion_tokens = 5;
  table.Forget(7);
  RequestRecord* second = table.Add(Named(8));
  EXPECT_NE(first, second) << "its record was not released";
  EXPECT_EQ(first->in.handle, 7u);
  table.Release(first);
  RequestRecord* third = table.Add(Named(9));
  EXPECT_EQ(third, first);
  EXPECT_EQ(third->completion_tokens, 0) << "a reused record starts empty";
}

}  // namespace
}  // namespace tactus::core
