// Questions to the simulator: how many may run and wait.
#include "serve/simulations.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tactus::serve {
namespace {

TEST(Simulations, OneClientHasHalfOfThePlacesAndPlacesComeBack) {
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  Simulations simulations(SystemClock(), "/no/such/program");
  std::vector<std::shared_ptr<std::promise<void>>> ends;
  const auto ask = [&](const std::string& client) {
    ends.push_back(std::make_shared<std::promise<void>>());
    return simulations.Ask(client, [gone, end = ends.back()] {
      gone.wait();
      end->set_value();
    });
  };
  EXPECT_TRUE(ask("greedy").ok());
  EXPECT_TRUE(ask("greedy").ok());
  EXPECT_EQ(simulations.Ask("greedy", [] {}).code(), StatusCode::kTooManyRequests);
  EXPECT_TRUE(ask("modest").ok());
  EXPECT_TRUE(ask("other").ok());
  const Status full = simulations.Ask("late", [] {});
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("4 simulations run or wait"), std::string::npos) << full.message();
  go.set_value();
  for (const auto& end : ends) end->get_future().wait();
  std::promise<void> again;
  // The place of the last task comes back just after its end.
  while (!simulations.Ask("greedy", [&again] { again.set_value(); }).ok()) std::this_thread::yield();
  again.get_future().wait();
}

TEST(Simulations, AfterStopTheReasonIsTrue) {
  Simulations simulations(SystemClock(), "/no/such/program");
  simulations.Stop();
  EXPECT_EQ(simulations.Ask("a", [] {}).message(), "the server is stopping");
}

}  // namespace
}  // namespace tactus::serve
