#include "contract/contract.h"

#include <gtest/gtest.h>

#include <vector>

#include "contract/checks.h"

namespace tactus::contract {
namespace {

class ContractTest : public testing::Test {
 public:
  ContractTest(std::shared_ptr<const Backend> backend, const Check& check)
      : backend_(std::move(backend)), check_(check) {}
  void TestBody() override { check_.run(*backend_); }

 private:
  const std::shared_ptr<const Backend> backend_;
  const Check check_;
};

}  // namespace

std::span<const Check> Checks() {
  static const std::vector<Check> all = [] {
    std::vector<Check> checks;
    for (const auto& some :
         {ScheduleChecks(), PipelineChecks(), CopyChecks(), SamplingChecks(), DraftChecks(), LimitChecks()})
      checks.insert(checks.end(), some.begin(), some.end());
    return checks;
  }();
  return all;
}

bool Register(Backend backend) {
  const auto shared = std::make_shared<const Backend>(std::move(backend));
  const std::string suite = shared->name + "Contract";
  for (const Check& check : Checks()) {
    if (check.needs != nullptr && !((*shared).*check.needs)) continue;
    testing::RegisterTest(suite.c_str(), check.name, nullptr, nullptr, __FILE__, __LINE__,
                          [shared, check]() -> ContractTest* { return new ContractTest(shared, check); });
  }
  return true;
}

}  // namespace tactus::contract
