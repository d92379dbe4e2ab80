// --kernels accepts the name of every kernel set.
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

#include "compute/kernels/ops.h"
#include "tactus/options.h"

namespace tactus::compute {
namespace {

// The choices of --kernels.
struct KernelChoices {
  std::set<std::string> names;
  void Group(const char*) {}
  template <class T>
  void Field(const char* name, T&, const FieldSpec& spec) {
    if (std::string(name) != "kernels") return;
    std::istringstream choices(spec.choices);
    for (std::string choice; std::getline(choices, choice, '|');) names.insert(choice);
  }
};

TEST(KernelsOption, AcceptsEveryRunnableSet) {
  KernelChoices choices;
  EngineOptions().VisitFields(choices);
  for (const Ops* ops : RunnableOps()) {
    EXPECT_TRUE(choices.names.contains(ops->name))
        << "--kernels does not accept " << ops->name << " (tactus/options.h)";
  }
}

}  // namespace
}  // namespace tactus::compute
