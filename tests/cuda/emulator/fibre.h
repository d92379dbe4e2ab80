// Fibres: stacks that a thread of the processor switches between. Boost's assembly for it takes 7 ns a switch, half of
// boost::context::fiber, because no object is made for a resumption.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace tactus::compute::cuda::emulator {

// Where a fibre goes on. AddressSanitizer also has to know its stack. ThreadSanitizer needs nothing: fibres stay on one
// thread of the processor, and only the deeper lines of its reports' stacks are then of other fibres.
struct Fibre {
  boost::context::detail::fcontext_t context = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  const void* stack = nullptr;
  size_t stack_bytes = 0;
#endif
};

// The first call of a fibre that has been switched to: notes where the fibre that was left goes on.
inline void FinishSwitch(boost::context::detail::transfer_t from, [[maybe_unused]] Fibre* here) {
  auto* left = static_cast<Fibre*>(from.data);
  left->context = from.fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(here->fake_stack, &left->stack, &left->stack_bytes);
#endif
}
// Leaves the running fibre, which is `here`, and continues at `to`.
inline void SwitchTo(Fibre* to, Fibre* here) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&here->fake_stack, to->stack, to->stack_bytes);
#endif
  FinishSwitch(boost::context::detail::jump_fcontext(to->context, here), here);
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
  Fibre Start(void (*entry)(boost::context::detail::transfer_t)) const;

 private:
  void* base_;
  int colour_;
};

}  // namespace tactus::compute::cuda::emulator
