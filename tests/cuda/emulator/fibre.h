// Fibres: stacks that a thread of the processor switches between. Boost's assembly for it takes 7 ns a switch, half of
// boost::context::fiber, because no object is made for a resumption.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

namespace tactus::compute::cuda::emulator {

using Context = boost::context::detail::fcontext_t;

// Leaves the running fibre, whose context is written to *save, and continues at `to`.
inline void SwitchTo(Context to, Context* save) {
  const auto from = boost::context::detail::jump_fcontext(to, save);
  *static_cast<Context*>(from.data) = from.fctx;
}

// A stack with a page below it that may not be accessed. `colour` shifts its start by some lines of the cache, so that
// the stacks of a warp do not compete for the same sets.
class FibreStack {
 public:
  explicit FibreStack(int colour);
  ~FibreStack();
  FibreStack(FibreStack&& from) noexcept : base_(from.base_), colour_(from.colour_) { from.base_ = nullptr; }
  FibreStack& operator=(FibreStack&&) = delete;
  // A fibre that will run `entry`, which never returns. It begins with FinishSwitch().
  Context Start(void (*entry)(boost::context::detail::transfer_t)) const;

 private:
  void* base_;
  int colour_;
};
inline void FinishSwitch(boost::context::detail::transfer_t from) {
  *static_cast<Context*>(from.data) = from.fctx;
}

}  // namespace tactus::compute::cuda::emulator
